package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func explained(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	status = run(args, &out, &err)
	return status, out.String(), err.String()
}

func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in:\n%s", p, text)
		}
	}
}

func TestGoodPolicy(t *testing.T) {
	status, out, err := explained(t)
	if status != 0 || err != "" {
		t.Fatalf("exit status %d: %s", status, err)
	}
	want(t, out, "GET https://api.example.com/reports/2026\n", `Deadline`, `5m0s`, `route "reports"`, "match > deadline > retry", "advice")
}

func TestJSON(t *testing.T) {
	status, out, _ := explained(t, "-json", "-method", "POST", "-url", "https://api.example.com/payments")
	var e struct{ Method, Route string }
	if err := json.Unmarshal([]byte(out), &e); err != nil || status != 0 {
		t.Fatalf("exit status %d: %v", status, err)
	}
	if e.Method != "POST" || e.Route != "payments" {
		t.Errorf("got %+v", e)
	}
}

func TestMalformedPolicy(t *testing.T) {
	status, _, err := explained(t, "-policy", "testdata/malformed.json")
	if status != 1 {
		t.Errorf("exit status %d", status)
	}
	want(t, err, "line 2, column 15: deadline: ", "line 3, column 3: timeout: unknown key", "routes[0].stream.enabled")
}

func TestImpossiblePolicy(t *testing.T) {
	status, _, err := explained(t, "-policy", "testdata/impossible.json")
	if status != 1 {
		t.Errorf("exit status %d", status)
	}
	want(t, err, `route "GET /reports/": Timeouts.Read is 5m0s, limit 20s`, "Retry.MaxAttempts is 50", "GET /users/me matches both")
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{{"-policy", "testdata/none.json"}, {"-url", "http://[::1"}, {"-url", "api.example.com/orders"}, {"-method", "a b"}, {"-colour"}} {
		if status, _, err := explained(t, args...); status == 0 || err == "" {
			t.Errorf("%q: exit status %d, %q", args, status, err)
		}
	}
}
