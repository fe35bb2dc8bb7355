// The commands of `lockstep`, one file each; argv[0] is the command's name. Each returns the exit code.
#pragma once

namespace lockstep::cli {

int RunMain(int argc, char** argv);
int TrainMain(int argc, char** argv);
int PlanMain(int argc, char** argv);
int EngineMain(int argc, char** argv);  // whatever the engine answers itself: config, eval, reconstruct, encode, decode
int RestoreMain(int argc, char** argv);  // the engine answers, or ranks of it
int CacheMain(int argc, char** argv);
int CacheBuildMain(int argc, char** argv);  // `cache build`, beside `train`: it starts ranks
int ExplainMain(int argc, char** argv);
int EnvMain(int argc, char** argv);
int RunsMain(int argc, char** argv);
int RunsCleanMain(int argc, char** argv);
int LogsMain(int argc, char** argv);
int WatchMain(int argc, char** argv);
int ReportMain(int argc, char** argv);
int StopMain(int argc, char** argv);
int SubmitMain(int argc, char** argv);
int JobsMain(int argc, char** argv);
int CancelMain(int argc, char** argv);
int TuneMain(int argc, char** argv);
int LintMain(int argc, char** argv);
int SelftestMain(int argc, char** argv);
int VersionMain(int argc, char** argv);
int DoctorMain(int argc, char** argv);
// The examinations of `doctor`.
int DoctorHardwareMain(int argc, char** argv);
int DoctorPreflightMain(int argc, char** argv);
int DoctorDiagnoseMain(int argc, char** argv);
int DoctorHangMain(int argc, char** argv);

}  // namespace lockstep::cli
