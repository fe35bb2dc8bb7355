#include <cstdio>
int main() { std::puts("lockstep"); }
