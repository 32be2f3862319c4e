package transport_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weir-go/weir"

// folders are the only places of packages, each with those of ours that it may
// import. A folder that is internal to one of them counts as part of it.
var folders = map[string][]string{
	"route":     nil,
	"stream":    nil,
	"policy":    {"route", "stream"},
	"layers":    {"policy", "stream"},
	"transport": {"route", "stream", "policy", "layers"},
	"clocktest": nil,
	"examples":  {"route", "stream", "policy", "layers", "transport", "clocktest"},
}

// banned are what the library, the examples aside, must not import, not even
// through another package, and why.
var banned = map[string]string{
	"net/http/httptest": "it is for tests, and brings flags into the user's program",
	"testing":           "it is for tests, and brings flags into the user's program; clocktest alone is for tests",
	"net/http/pprof":    "it registers handlers on the default mux",
	"expvar":            "it registers handlers on the default mux",
	"plugin":            "it keeps the linker from leaving out what is not used",
}

// direct are what the packages of the library must not import themselves;
// their dependencies may.
var direct = map[string]string{
	"log":       "a library prints nothing: it tells the observer",
	"math/rand": "use Env.Rand or math/rand/v2",
	"unsafe":    "nothing here needs it",
}

// modules are those that go.mod may require, and what for. Whatever else an
// integration or a comparison needs lives in a module of its own.
var modules = map[string]string{
	"github.com/benbjohnson/clock":          "the clock that is injected",
	"github.com/hashicorp/go-retryablehttp": "the plug points of the retry policy, and its classification of errors",
	"github.com/sony/gobreaker/v2":          "the breaker's state machine",
	"golang.org/x/sync":                     "a token is made by one call for all",
	"golang.org/x/time":                     "the token engine of the rate budget",
	"go.uber.org/goleak":                    "tests",
}

var indirect = map[string]string{
	"github.com/hashicorp/go-cleanhttp": "go-retryablehttp needs it",
}

// folder returns the top folder of one of our packages, and "" for all others.
func folder(path string) string {
	rest, ours := strings.CutPrefix(path, module+"/")
	if !ours {
		return ""
	}
	top, _, _ := strings.Cut(rest, "/")
	return top
}

func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func TestImports(t *testing.T) {
	type pkg struct {
		ImportPath    string
		Imports, Deps []string
	}
	dec := json.NewDecoder(strings.NewReader(string(goCommand(t, "list", "-deps", "-json=ImportPath,Imports,Deps", "./..."))))
	found := 0
	for dec.More() {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		in := folder(p.ImportPath)
		if in == "" {
			if strings.HasPrefix(p.ImportPath, module) {
				t.Errorf("%s: there is no package at the root", p.ImportPath)
			}
			continue
		}
		found++
		allowed, known := folders[in]
		if !known {
			t.Errorf("%s: a package belongs into one of the folders in this test", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			if f := folder(i); f != "" && f != in && !slices.Contains(allowed, f) {
				t.Errorf("%s imports %s: %s may import %q of ours", p.ImportPath, i, in, allowed)
			}
			if reason := direct[i]; reason != "" && in != "clocktest" && in != "examples" {
				t.Errorf("%s imports %s: %s", p.ImportPath, i, reason)
			}
		}
		for _, d := range p.Deps {
			if reason := banned[d]; reason != "" && in != "clocktest" && in != "examples" {
				t.Errorf("%s depends on %s: %s", p.ImportPath, d, reason)
			}
		}
	}
	if found < len(folders) {
		t.Errorf("go list knows %d packages of ours, fewer than there are folders", found)
	}
}

func TestRequirements(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
	}
	if err := json.Unmarshal(goCommand(t, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Replace != nil {
		t.Error("go.mod replaces a module: that would hold for us and for no user")
	}
	for _, r := range mod.Require {
		allowed := modules
		if r.Indirect {
			allowed = indirect
		}
		if allowed[r.Path] == "" {
			t.Errorf("go.mod requires %s (indirect: %v), which no user of the library should have to download", r.Path, r.Indirect)
		}
	}
}
