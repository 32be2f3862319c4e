package stream

import (
	"strconv"
	"strings"
)

// verdict returns what to say of an event that reports f.
func (f fault) verdict(dialect string) verdict {
	e := &FailureError{Dialect: dialect, Type: identifier(f.typ), Code: identifier(f.code)}
	// What is wrong with a request is said by a status and a type. A bare
	// sentence in the middle of a 200 is how a backend dies.
	nameless := len(f.typ)+len(f.code) == 0
	e.Retryable = nameless || transient(e.Type) || transient(e.Code)
	return verdict{class: Failure, failure: e, known: f.found}
}

// identifier returns b if it can be a type or a code, and "" if it could be
// anything else, such as a message.
func identifier(b []byte) string {
	if len(b) > 64 {
		return ""
	}
	for _, c := range b {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return ""
		}
	}
	return string(b)
}

// limited reports whether a type or code of an error says that it is the sender's
// share that is used up, or that the request took its time to come: what a status
// of 429 or 408 says.
func limited(name string) bool {
	switch name {
	case "rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED", "throttlingException", "429", "408":
		return true
	}
	return false
}

// rejected reports whether a type or code of an error says that it is the request that
// is wrong: what another status from 400 to 499 says, or 501.
func rejected(name string) bool {
	switch name {
	case "authentication_error", "permission_error", "billing_error", "not_found_error", "request_too_large", // anthropic
		"insufficient_quota", "context_length_exceeded", "content_filter", "tool_use_failed", "model_not_found", // openai and its like
		"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND", // gemini
		"validationException", "accessDeniedException", "resourceNotFoundException": // bedrock
		return true
	}
	status, err := strconv.Atoi(name)
	return strings.HasPrefix(name, "invalid_") || err == nil && (status >= 400 && status < 500 || status == 501)
}

// transient reports whether a type or code of an error names a condition of the
// server that may pass.
func transient(name string) bool {
	switch name {
	case "overloaded_error", "api_error", "timeout_error", // anthropic
		"server_error", "internal_server_error", "service_unavailable", "overloaded", "timeout", // openai and its like
		"UNAVAILABLE", "INTERNAL", // gemini
		"internalServerException", "serviceUnavailableException", // bedrock
		"modelStreamErrorException", "modelTimeoutException",
		"ERROR", "TIMEOUT": // cohere
		return true
	}
	status, err := strconv.Atoi(name)
	return limited(name) || err == nil && status >= 500 && status < 600 && status != 501
}

// A fault is what an error in a payload is called.
type fault struct {
	found     bool
	google    bool // it has a status, which is Google's word for a type
	among     bool // other members than those of a report are beside it
	typ, code []byte
}

// alone reports whether the payload says nothing but that there was an error. What
// says more, such as a line of a log or an answer of JSON-RPC, may be of any stream,
// and that goes on.
func (f *fault) alone() bool { return !f.among && !f.google }

// beside takes a member beside the one that is the error.
func (f *fault) beside(s *scanner, key []byte) {
	switch string(key) {
	case "type", "code":
		f.member(s, key)
		return
	case "message", "param", "object", "model", "error_type", "request_id", "user_id":
	default:
		f.among = true
	}
	s.skip()
}

// fault takes the value of a member that is an error unless it is null, false, 0 or
// empty.
func (s *scanner) fault(f *fault) {
	switch s.peek() {
	case '{':
		for key := s.object(); key != nil; key = s.member() {
			f.found = true
			f.member(s, key)
		}
	case '"':
		v, _ := s.str()
		f.found = f.found || len(v) > 0
	case '[':
		for more := s.list(); more; more = s.elem() {
			f.found = true
			s.skip()
		}
	default:
		switch string(s.literal()) {
		case "", "null", "false", "0":
		default:
			f.found = true
		}
	}
}

// member takes the value of a member of an object that describes an error.
func (f *fault) member(s *scanner, key []byte) {
	switch string(key) {
	case "type":
		f.typ = s.text()
	case "status":
		if status := s.text(); len(status) > 0 {
			f.typ, f.google = status, true
		}
	case "code":
		f.code = s.word()
	default:
		s.skip()
	}
}
