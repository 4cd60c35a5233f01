// SPDX-License-Identifier: Apache-2.0

#include "tracker/dtr_log.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace ebbtide {
namespace {

using Kind = DtrInstruction::Kind;

// Up to here every whole number is a double too, so that no reader of the log can round it.
constexpr int64_t kNumberMax = int64_t{1} << 53;

// True if `value` is a whole number, written as one or as a string.
bool AsNumber(const nlohmann::json& value, int64_t* number) {
  if (value.is_string()) return absl::SimpleAtoi(value.get_ref<const std::string&>(), number);
  if (!value.is_number_integer()) return false;
  // Above the signed range a number would turn into a negative one.
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{kNumberMax}) return false;
  *number = value.get<int64_t>();
  return true;
}

}  // namespace

// One line of the log as an object, with typed access to its fields.
class DtrLog::Line {
 public:
  bool Parse(const std::string& text) {
    object_ = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    return object_.is_object();
  }

  absl::StatusOr<std::string> Text(const char* field) const {
    const auto it = object_.find(field);
    if (it == object_.end() || !it->is_string()) return Missing(field, "a text");
    return it->get<std::string>();
  }

  // A whole number of at least `least`.
  absl::StatusOr<int64_t> Number(const char* field, int64_t least) const {
    const auto it = object_.find(field);
    int64_t number = 0;
    if (it == object_.end() || !AsNumber(*it, &number) || number < least || number > kNumberMax) {
      return Missing(field, absl::StrCat("a whole number from ", least, " to 2^53"));
    }
    return number;
  }

  absl::StatusOr<std::vector<std::string>> Texts(const char* field) const {
    const auto it = object_.find(field);
    if (it == object_.end() || !it->is_array()) return Missing(field, "a list of texts");
    std::vector<std::string> texts;
    for (const nlohmann::json& each : *it) {
      if (!each.is_string()) return Missing(field, "a list of texts");
      texts.push_back(each.get<std::string>());
    }
    return texts;
  }

  // Indices from 0 to below `count`.
  absl::StatusOr<std::vector<int>> Indices(const char* field, size_t count) const {
    const auto it = object_.find(field);
    if (it == object_.end() || !it->is_array()) return Missing(field, "a list of indices");
    std::vector<int> indices;
    for (const nlohmann::json& each : *it) {
      int64_t index = 0;
      if (!AsNumber(each, &index) || index < 0 || static_cast<size_t>(index) >= count) {
        return Missing(field, absl::StrCat("a list of indices below ", count));
      }
      indices.push_back(static_cast<int>(index));
    }
    return indices;
  }

 private:
  static absl::Status Missing(const char* field, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is not ", what));
  }

  nlohmann::json object_;
};

absl::Status DtrLog::Error(int64_t line, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(name_, " line ", line, ": ", what));
}

absl::StatusOr<bool> DtrLog::ReadLine(Line* line) {
  std::string text;
  if (!std::getline(*in_, text)) {
    if (in_->bad()) return absl::InvalidArgumentError("cannot be read");
    return false;
  }
  ++line_;
  if (!line->Parse(text)) return absl::InvalidArgumentError("no JSON object");
  return true;
}

absl::Status DtrLog::SkipToStart() {
  while (!started_) {
    Line line;
    EBB_ASSIGN_OR_RETURN(const bool more, ReadLine(&line));
    if (!more) return absl::InvalidArgumentError("the log ends without ANNOTATE START");
    started_ = line.Text("ANNOTATION").value_or("") == "START";
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> DtrLog::ReadInstruction(DtrInstruction* instruction) {
  EBB_RETURN_IF_ERROR(SkipToStart());
  Line line;
  EBB_ASSIGN_OR_RETURN(const bool more, ReadLine(&line));
  instruction->line = line_;
  if (more) EBB_RETURN_IF_ERROR(Fill(line, instruction));
  return more;
}

absl::StatusOr<std::optional<DtrInstruction>> DtrLog::Next() {
  DtrInstruction instruction;
  const absl::StatusOr<bool> more = ReadInstruction(&instruction);
  if (!more.ok()) return Error(line_, more.status().message());
  if (!*more) return std::nullopt;
  return instruction;
}

absl::Status DtrLog::Fill(const Line& line, DtrInstruction* to) {
  EBB_ASSIGN_OR_RETURN(const std::string kind, line.Text("INSTRUCTION"));
  if (kind == "CONSTANT") {
    to->kind = Kind::kConstant;
    DtrResult& result = to->results.emplace_back();
    EBB_ASSIGN_OR_RETURN(result.name, line.Text("NAME"));
    EBB_ASSIGN_OR_RETURN(result.bytes, ReadMemory(result.name));
  } else if (kind == "CALL" || kind == "MUTATE") {
    to->kind = kind == "CALL" ? Kind::kCall : Kind::kMutate;
    EBB_ASSIGN_OR_RETURN(to->operation, line.Text("NAME"));
    EBB_ASSIGN_OR_RETURN(to->arguments, line.Texts("ARGS"));
    EBB_ASSIGN_OR_RETURN(const int64_t nanos, line.Number("TIME", 0));
    to->duration = Nanos(nanos);
    if (to->kind == Kind::kMutate) {
      EBB_ASSIGN_OR_RETURN(to->mutated, line.Indices("MUTATE", to->arguments.size()));
      return absl::OkStatus();
    }
    EBB_ASSIGN_OR_RETURN(const std::vector<std::string> names, line.Texts("RESULT"));
    for (const std::string& name : names) {
      DtrResult& result = to->results.emplace_back();
      result.name = name;
      EBB_ASSIGN_OR_RETURN(result.bytes, ReadMemory(name));
      EBB_ASSIGN_OR_RETURN(result.alias, ReadAlias(name, to->arguments.size()));
    }
  } else if (kind == "COPY" || kind == "COPY_FROM") {
    to->kind = kind == "COPY" ? Kind::kCopy : Kind::kCopyFrom;
    EBB_ASSIGN_OR_RETURN(to->name, line.Text("DST"));
    EBB_ASSIGN_OR_RETURN(to->source, line.Text("SRC"));
  } else if (kind == "RELEASE") {
    to->kind = Kind::kRelease;
    EBB_ASSIGN_OR_RETURN(to->name, line.Text("NAME"));
  } else if (kind == "ANNOTATE") {
    to->kind = Kind::kAnnotate;
    EBB_ASSIGN_OR_RETURN(to->name, line.Text("ANNOTATION"));
  } else {
    return absl::InvalidArgumentError(absl::StrCat(kind, " does not begin an instruction"));
  }
  return absl::OkStatus();
}

absl::Status DtrLog::ReadBelonging(const char* kind, const std::string& of, Line* line) {
  EBB_ASSIGN_OR_RETURN(const bool more, ReadLine(line));
  if (!more || line->Text("INSTRUCTION").value_or("") != kind ||
      line->Text("NAME").value_or("") != of) {
    return absl::InvalidArgumentError(absl::StrCat("not the ", kind, " of ", of));
  }
  return absl::OkStatus();
}

absl::StatusOr<Bytes> DtrLog::ReadMemory(const std::string& of) {
  Line line;
  EBB_RETURN_IF_ERROR(ReadBelonging("MEMORY", of, &line));
  EBB_ASSIGN_OR_RETURN(const int64_t bytes, line.Number("MEMORY", 0));
  return Bytes(bytes);
}

absl::StatusOr<int> DtrLog::ReadAlias(const std::string& of, size_t arguments) {
  Line line;
  EBB_RETURN_IF_ERROR(ReadBelonging("ALIAS", of, &line));
  EBB_ASSIGN_OR_RETURN(const int64_t alias, line.Number("ALIAS", -1));
  if (alias >= static_cast<int64_t>(arguments)) {
    return absl::InvalidArgumentError(absl::StrCat("ALIAS ", alias, " is no argument"));
  }
  return static_cast<int>(alias);
}

}  // namespace ebbtide
