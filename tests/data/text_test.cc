// Text as documents and sequences: what is read, and what is refused.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "data/corpus.h"
#include "data/packed_source.h"
#include "data/token_file.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

class Text : public testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& content) {
    const std::string path = dir_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  Result<std::shared_ptr<const Corpus>> Open(const std::string& name, const std::string& kind = "auto") {
    CorpusConfig config;
    config.kind = kind;
    config.path = name.empty() ? dir_.path() : dir_ / name;
    return OpenCorpus(config);
  }
  // Documents as text.
  static std::vector<std::string> Texts(const Corpus& corpus) {
    std::vector<std::string> texts;
    for (uint64_t d = 0; d < corpus.documents(); ++d) {
      std::vector<int64_t> tokens(corpus.tokens(d));
      EXPECT_TRUE(corpus.Read(d, 0, tokens.size(), tokens.data()).ok());
      texts.emplace_back(tokens.begin(), tokens.end());
    }
    return texts;
  }
  TempDir dir_ = *TempDir::Create();
};

struct Sequence {
  std::vector<int64_t> tokens, labels, positions, documents;
};

Sequence ReadSequence(const Source& source, uint64_t index) {
  Sequence s;
  const auto length = static_cast<size_t>(source.fields()[0].shape[0]);
  std::vector<std::byte*> out;
  for (auto* field : {&s.tokens, &s.labels, &s.positions, &s.documents}) {
    field->resize(length);
    out.push_back(reinterpret_cast<std::byte*>(field->data()));
  }
  const Status status = source.Read({.index = index}, out);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return s;
}

TEST_F(Text, AFolderIsReadInNaturalOrderAndAFileIsADocument) {
  Put("f/10.txt", "ten");
  Put("f/2.md", "two\xff");  // any encoding
  Put("f/sub/a.py", "code");
  Put("f/empty.txt", "");
  Put("f/.hidden", "no");
  const auto corpus = Open("f");
  ASSERT_TRUE(corpus.ok()) << corpus.status().ToString();
  EXPECT_EQ(Texts(**corpus), (std::vector<std::string>{"two\xff", "ten", "code"}));
  EXPECT_THAT((*corpus)->Describe(), HasSubstr("1 empty file left out"));
  EXPECT_EQ((*corpus)->vocabulary(), ByteVocabulary());
  const std::string before = (*corpus)->Digest();
  EXPECT_EQ((*Open("f"))->Digest(), before);
  Put("f/2.md", "longer");
  EXPECT_NE((*Open("f"))->Digest(), before);
}

TEST_F(Text, JsonLinesGiveTheTextOfAField) {
  Put("a.jsonl", "{\"text\": \"one\\n\\u00e9\"}\n\n{\"id\": 3, \"text\": \"\"}\r\n{\"text\": \"last\"}");
  const auto corpus = Open("a.jsonl");
  ASSERT_TRUE(corpus.ok()) << corpus.status().ToString();
  EXPECT_EQ(Texts(**corpus), (std::vector<std::string>{"one\n\xc3\xa9", "last"}));
  EXPECT_THAT((*corpus)->Name(1), HasSubstr("a.jsonl line 4"));
  EXPECT_THAT((*corpus)->Describe(), HasSubstr("1 line without text left out"));
}

TEST_F(Text, JsonLinesAreParsedByOneRankForAll) {
  CorpusConfig config;
  config.path = Put("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"two\"}\n");
  const auto index = IndexCorpus(config);
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  config.index = std::make_shared<const std::string>(*index);
  const auto other = OpenCorpus(config);
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  EXPECT_EQ(Texts(**other), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ((*other)->Describe(), (*Open("a.jsonl"))->Describe());
  EXPECT_EQ((*other)->Digest(), (*Open("a.jsonl"))->Digest());
  Put("a.jsonl", "{\"text\": \"another\"}\n");
  EXPECT_THAT(OpenCorpus(config).status().ToString(), HasSubstr("other files on this node"));
  EXPECT_EQ(*IndexCorpus({.kind = "text", .path = config.path}), "") << "each rank lists text files for itself";
}

TEST_F(Text, LinesMayBeLongerThanABlock) {
  const std::string large(5u << 20, 'x');
  Put("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"" + large + "\"}\n{\"text\": \"b\"}\n");
  EXPECT_EQ(Texts(**Open("a.jsonl")), (std::vector<std::string>{"a", large, "b"}));
}

TEST_F(Text, WhatIsNoTextIsRefused) {
  Put("empty.txt", "");
  Put("none/sub/empty.txt", "");
  Put("binary/a.txt", "fine");
  Put("binary/photo.bin", std::string("ab\0cd", 5));
  Put("bad.jsonl", "{\"text\": \"a\"}\nnot json\n");
  Put("list.jsonl", "[1, 2]\n");
  Put("field.jsonl", "{\"body\": \"a\", \"id\": 1}\n");
  Put("number.jsonl", "{\"text\": 5}\n");
  Put("blank.jsonl", "\n\n");
  Put("folder/a.txt", "x");
  Put("text.tokens", "LSTOKENS but no more");
  Put("mixed/a.jsonl", "{}");
  Put("mixed/README", "x");
  struct Row {
    const char *name, *kind, *says;
  };
  for (const Row& row : {Row{"missing.txt", "auto", "No such file"}, Row{"empty.txt", "auto", "is empty"},
                         Row{"none", "text", "is empty"}, Row{"binary", "text", "binary/photo.bin"},
                         Row{"bad.jsonl", "auto", "bad.jsonl' line 2: expected a JSON object, found 'not json'"},
                         Row{"list.jsonl", "auto", "line 1: expected a JSON object, found JSON of type array"},
                         Row{"field.jsonl", "auto", "line 1: expected the field 'text', found body, id"},
                         Row{"number.jsonl", "auto", "line 1: expected text in the field 'text', found number"},
                         Row{"blank.jsonl", "auto", "no line with text"},
                         Row{"folder", "jsonl", "looked for *.jsonl *.ndjson, found 1 file: 1 .txt"},
                         Row{"folder/a.txt", "tokens", "begins with LSTOKENS"}, Row{"text.tokens", "auto", "version"},
                         Row{"mixed", "auto", "1 file of kind jsonl, 1 file of kind text"},
                         Row{"folder", "txt", "unknown kind of text 'txt'"}}) {
    const auto corpus = Open(row.name, row.kind);
    ASSERT_FALSE(corpus.ok()) << row.name;
    EXPECT_THAT(corpus.status().ToString(), HasSubstr(row.says)) << row.name;
  }
}

// By hand: "abc" 256 "de" 256 "fghij" 256, cut every five.
TEST_F(Text, DocumentsArePackedAndNothingIsPredictedAcrossThem) {
  Put("1", "abc");
  Put("2", "de");
  Put("3", "fghij");
  const auto split = PackCorpus(*Open(""), 5, 0, 0, 1);
  ASSERT_TRUE(split.ok()) << split.status().ToString();
  const PackedSource& source = *split->train;
  EXPECT_EQ(split->validation, nullptr);
  EXPECT_EQ(source.size(), 2u);  // 13 tokens
  EXPECT_EQ(source.most_documents(), 2u);
  const Sequence first = ReadSequence(source, 0), second = ReadSequence(source, 1);
  EXPECT_EQ(first.tokens, (std::vector<int64_t>{'a', 'b', 'c', 256, 'd'}));
  EXPECT_EQ(first.labels, (std::vector<int64_t>{'b', 'c', 256, -100, 'e'}));
  EXPECT_EQ(first.positions, (std::vector<int64_t>{0, 1, 2, 3, 0}));
  EXPECT_EQ(first.documents, (std::vector<int64_t>{0, 0, 0, 0, 1}));
  EXPECT_EQ(second.tokens, (std::vector<int64_t>{'e', 256, 'f', 'g', 'h'}));
  EXPECT_EQ(second.labels, (std::vector<int64_t>{256, -100, 'g', 'h', 'i'}));
  EXPECT_EQ(second.positions, (std::vector<int64_t>{0, 1, 0, 1, 2}));
  EXPECT_EQ(second.documents, (std::vector<int64_t>{0, 0, 1, 1, 1}));
}

TEST_F(Text, EverySequenceIsThatOfTheWholeStream) {
  const auto corpus = GenerateText(40, 3);
  std::vector<int64_t> stream, follows;
  for (const std::string& text : Texts(*corpus)) {
    for (const char c : text) stream.push_back(static_cast<unsigned char>(c));
    stream.push_back(256);
  }
  for (size_t i = 0; i < stream.size(); ++i) follows.push_back(stream[i] == 256 ? -100 : stream[i + 1]);
  for (const uint64_t length : {1, 7, 64, 1000}) {
    const auto split = PackCorpus(corpus, length, 0, 0, 0);
    const PackedSource& source = *split->train;
    ASSERT_EQ(source.size(), stream.size() / length);
    uint64_t most = 0;
    for (uint64_t i = 0; i < source.size(); ++i) {
      const Sequence s = ReadSequence(source, i);
      const auto at = static_cast<std::ptrdiff_t>(i * length);
      ASSERT_TRUE(std::equal(s.tokens.begin(), s.tokens.end(), stream.begin() + at));
      ASSERT_TRUE(std::equal(s.labels.begin(), s.labels.end(), follows.begin() + at));
      ASSERT_EQ(source.Labelled(i), length - static_cast<uint64_t>(std::ranges::count(s.labels, -100)));
      most = std::max(most, static_cast<uint64_t>(s.documents.back()) + 1);
    }
    EXPECT_EQ(source.most_documents(), most);
  }
}

TEST_F(Text, DocumentsAreHeldOutWhole) {
  const auto corpus = GenerateText(300, 1);
  const auto split = PackCorpus(corpus, 32, 0.1, 0, 7);
  ASSERT_TRUE(split.ok()) << split.status().ToString();
  uint64_t all = 0;
  for (const std::string& text : Texts(*corpus)) all += text.size() + 1;
  EXPECT_EQ(split->train->tokens() + split->validation->tokens(), all);
  EXPECT_NEAR(static_cast<double>(split->validation->tokens()) / static_cast<double>(all), 0.1, 0.06);
  EXPECT_NE(split->train->Digest(), split->validation->Digest());
  EXPECT_EQ(PackCorpus(corpus, 32, 0.1, 0, 7)->train->Digest(), split->train->Digest());
  EXPECT_NE(PackCorpus(corpus, 32, 0.1, 0, 8)->train->Digest(), split->train->Digest());
  EXPECT_EQ(PackCorpus(corpus, 32, 0.1, 3, 7)->validation->size(), 3u);
}

TEST_F(Text, OfOneDocumentTheLastPartIsHeldOut) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i % 26);
  Put("one.txt", text);
  const auto split = PackCorpus(*Open("one.txt"), 50, 0.1, 0, 7);
  ASSERT_TRUE(split.ok()) << split.status().ToString();
  EXPECT_EQ(split->train->size(), 18u);  // 900 and an end token
  EXPECT_EQ(split->validation->size(), 2u);
  EXPECT_EQ(ReadSequence(*split->validation, 0).tokens[0], 'a' + 900 % 26);
  EXPECT_EQ(ReadSequence(*split->train, 17).tokens[49], 'a' + 899 % 26);
}

TEST_F(Text, TooLittleForASequenceIsSaid) {
  Put("one.txt", "0123456789");
  for (const double fraction : {0.0, 0.1}) {
    const auto split = PackCorpus(*Open("one.txt"), 16, fraction, 0, 7);
    ASSERT_FALSE(split.ok());
    EXPECT_THAT(split.status().ToString(), HasSubstr("the data have 11 tokens"));
    EXPECT_THAT(split.status().ToString(), HasSubstr("data.length 16"));
  }
  for (const uint64_t length : {1, 2, 3, 4})
    EXPECT_TRUE(PackCorpus(*Open("one.txt"), length, 0.5, 0, 7).ok()) << length;
}

TEST_F(Text, GeneratedTextIsAFunctionOfItsSeed) {
  EXPECT_EQ(Texts(*GenerateText(5, 1)), Texts(*GenerateText(5, 1)));
  EXPECT_NE(Texts(*GenerateText(5, 1)), Texts(*GenerateText(5, 2)));
  EXPECT_EQ(Texts(*GenerateText(9, 1))[4], Texts(*GenerateText(5, 1))[4]);
  EXPECT_NE(GenerateText(5, 1)->Digest(), GenerateText(6, 1)->Digest());
}

TEST_F(Text, PackedTokensAreReadAsWritten) {
  for (const uint64_t vocabulary : {257, 70000}) {
    const std::string path = dir_ / ("v" + std::to_string(vocabulary) + ".tokens");
    auto writer = TokenFileWriter::Create(path, {"mine", vocabulary, 0}, false);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    const std::vector<std::vector<int64_t>> documents = {{1, 2, static_cast<int64_t>(vocabulary) - 1}, {}, {5}};
    for (const auto& document : documents) {
      ASSERT_TRUE(writer->Add(document).ok());
      ASSERT_TRUE(writer->EndDocument().ok());
    }
    EXPECT_FALSE(writer->Add(std::vector<int64_t>{static_cast<int64_t>(vocabulary)}).ok());
    ASSERT_TRUE(writer->Finish().ok());
    const auto corpus = OpenCorpus({.path = path});
    ASSERT_TRUE(corpus.ok()) << corpus.status().ToString();
    ASSERT_EQ((*corpus)->documents(), 3u);
    EXPECT_EQ((*corpus)->vocabulary(), (Vocabulary{"mine", vocabulary, 0}));
    for (uint64_t d = 0; d < 3; ++d) {
      std::vector<int64_t> tokens((*corpus)->tokens(d));
      ASSERT_TRUE((*corpus)->Read(d, 0, tokens.size(), tokens.data()).ok());
      EXPECT_EQ(tokens, documents[d]);
    }
    EXPECT_TRUE(VerifyTokenFile(path, {}).ok());
  }
  const auto mixed = Open("", "tokens");
  ASSERT_FALSE(mixed.ok());
  EXPECT_THAT(mixed.status().ToString(), HasSubstr("has a vocabulary of 257"));
}

// Any byte of the file is one that the header, the places, the tokens' range or the checksum answers for.
TEST_F(Text, ADamagedTokenFileIsNoticed) {
  const std::string path = dir_ / "a.tokens";
  auto writer = TokenFileWriter::Create(path, ByteVocabulary(), false);
  ASSERT_TRUE(writer->Add(std::vector<int64_t>{104, 105}).ok() && writer->EndDocument().ok() && writer->Finish().ok());
  const std::string good = *ReadFile(path);
  ASSERT_TRUE(VerifyTokenFile(path, {}).ok());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    Put("a.tokens", bad);
    EXPECT_FALSE(VerifyTokenFile(path, {}).ok()) << "byte " << i;
  }
  for (const size_t bytes : {size_t{0}, size_t{8}, size_t{79}, good.size() - 1}) {
    Put("a.tokens", good.substr(0, bytes));
    EXPECT_FALSE(TokenFile::Open(path).ok()) << bytes << " bytes";
  }
}

}  // namespace
}  // namespace lockstep::data
