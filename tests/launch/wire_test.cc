#include "launch/wire.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace lockstep::launch {
namespace {

TEST(Wire, AFrameFedByteByByteArrivesWhole) {
  const Json message = {{"type", "hello"}, {"text", "grüße\n"}, {"n", 7}};
  FrameParser parser;
  const std::string frame = EncodeFrame(message);
  for (size_t i = 0; i + 1 < frame.size(); ++i) {
    parser.Feed(frame.substr(i, 1));
    auto next = parser.Next();
    ASSERT_TRUE(next.ok());
    ASSERT_FALSE(next->has_value()) << "after " << i + 1 << " of " << frame.size() << " bytes";
  }
  parser.Feed(frame.substr(frame.size() - 1));
  auto next = parser.Next();
  ASSERT_TRUE(next.ok() && next->has_value());
  EXPECT_EQ(**next, message);
}

TEST(Wire, SeveralFramesInOneReadAreSeveralMessages) {
  FrameParser parser;
  parser.Feed(EncodeFrame({{"type", "a"}}) + EncodeFrame({{"type", "b"}}));
  EXPECT_EQ(GetString(**parser.Next(), "type"), "a");
  EXPECT_EQ(GetString(**parser.Next(), "type"), "b");
  EXPECT_FALSE(parser.Next()->has_value());
}

TEST(Wire, StrangersAreRecognisedByTheirFirstByte) {
  for (const char* bytes : {"GET / HTTP/1.1\r\n", "\x16\x03\x01", "SSH-2.0", "x"}) {
    FrameParser parser;
    parser.Feed(std::string_view(bytes, 1));
    EXPECT_FALSE(parser.Next().ok()) << bytes;
  }
}

TEST(Wire, AnotherProtocolIsNamed) {
  FrameParser parser;
  parser.Feed(std::string("LKS\x09", 4));
  EXPECT_NE(parser.Next().status().message().find("protocol 9"), std::string::npos);
}

TEST(Wire, AnOversizedFrameIsRefusedBeforeItsBodyArrives) {
  FrameParser parser(100);
  parser.Feed(std::string("LKS\x01\x00\x00\x00\x65", 8));
  auto next = parser.Next();
  ASSERT_FALSE(next.ok());
  EXPECT_NE(next.status().message().find("101 bytes"), std::string::npos);
  FrameParser exact(100);
  exact.Feed(std::string("LKS\x01\x00\x00\x00\x64", 8));
  EXPECT_TRUE(exact.Next().ok());
}

TEST(Wire, AnErrorIsFinal) {
  FrameParser parser;
  parser.Feed("nonsense");
  ASSERT_FALSE(parser.Next().ok());
  parser.Feed(EncodeFrame({{"type", "a"}}));
  EXPECT_FALSE(parser.Next().ok());
}

TEST(Wire, WhatIsNotAMessageIsRefused) {
  const auto raw = [](const std::string& body) {
    std::string frame("LKS\x01\x00\x00\x00", 7);
    frame.push_back(static_cast<char>(body.size()));
    return frame + body;
  };
  for (const char* body : {"", "[]", "{}", "null", "{\"type\":1}", "{\"type\":\"a\"", "\"type\""}) {
    FrameParser parser;
    parser.Feed(raw(body));
    EXPECT_FALSE(parser.Next().ok()) << body;
  }
}

TEST(Wire, BytesThatAreNotTextAreReplacedNotThrown) {
  FrameParser parser;
  parser.Feed(EncodeFrame({{"type", "exit"}, {"tail", "\xff\xfe ok"}}));
  auto next = parser.Next();
  ASSERT_TRUE(next.ok() && next->has_value());
  EXPECT_NE(GetString(**next, "tail").find(" ok"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
