package lifecycle

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
)

var transcripts = flag.String("transcripts", "", "`directory` for transcripts of the tutorials with times; "+
	"if set, the tutorials are run in a clone including make, instead of a directory with prebuilt programs")

// tutorials maps the tutorials to texts that the output of their commands must contain.
var tutorials = map[string][]string{
	"first-hour":  {"Works, ", "Planned start: ", "Actual start: "},
	"first-day":   {"Works, ", "uninstalled"},
	"first-paper": {"report.html"},
}

// TestTutorials follows each tutorial like a new user. It runs all commands in sh blocks in order in one shell, and
// none of them may fail.
func TestTutorials(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("three tutorials take half an hour: set KUBENERGY_LONG")
	}
	for name, wants := range tutorials {
		t.Run(name, func(t *testing.T) {
			f := follower{began: time.Now()}
			f.folder(t)
			page := commandsOf(t, filepath.Join(kit.Root, "docs/tutorials", name+".md"), "")
			s := newShell(t, f.dir, goFolders(t)...)
			for _, command := range page.commands {
				if *transcripts == "" && (strings.HasPrefix(command, "make build") || strings.HasPrefix(command, "go build -o bin/")) {
					continue // already built
				}
				f.do(t, s, command)
			}
			for _, want := range wants {
				if !strings.Contains(f.text.String(), want) {
					t.Errorf("no output contains %q", want)
				}
			}
			f.write(t, name)
		})
	}
}

// follower records the output of a tutorial's commands.
type follower struct {
	dir   string
	began time.Time
	text  strings.Builder
}

// folder creates the directory in which the commands run.
func (f *follower) folder(t *testing.T) {
	if *transcripts == "" {
		f.dir = build(t)
		return
	}
	f.dir = filepath.Join(kit.Dir(t, "clone"), "kubenergy")
	clone := exec.CommandContext(t.Context(), "git", "clone", "--quiet", kit.Root, f.dir)
	if out, err := clone.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// do runs one command, which must succeed.
func (f *follower) do(t *testing.T, s *shell, command string) {
	t.Helper()
	at := time.Since(f.began).Round(time.Second)
	began := time.Now()
	output, code := s.try(command)
	fmt.Fprintf(&f.text, "[%02d:%02d] $ %s\n%s", int(at.Minutes()), int(at.Seconds())%60, command, output)
	if took := time.Since(began).Round(time.Second); took >= 2*time.Second {
		fmt.Fprintf(&f.text, "(took %v)\n", took)
	}
	t.Logf("[%v] $ %s\n%s", at, command, shorten(output))
	if code != 0 {
		fmt.Fprintf(&f.text, "(exit code %d)\n", code)
		f.write(t, "failed")
		t.Fatalf("exit code %d", code)
	}
}

// write writes the transcript with the name of the directory replaced.
func (f *follower) write(t *testing.T, name string) {
	t.Helper()
	if *transcripts == "" {
		return
	}
	text := strings.ReplaceAll(f.text.String(), f.dir, "~/kubenergy")
	for i := 1; ; i++ {
		path := filepath.Join(*transcripts, fmt.Sprintf("%s-%d.txt", name, i))
		if _, err := os.Stat(path); err == nil {
			continue // written by an earlier run
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
}

// goFolders returns environment variables for the Go caches, because the shell uses a different home directory.
func goFolders(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	folders := strings.Fields(string(out))
	return []string{"GOCACHE=" + folders[0], "GOMODCACHE=" + folders[1]}
}

// TestTutorialsCanBeFollowed verifies that each tutorial describes its result, duration and requirements, marks its
// commands as tested or untested and contains five questions with answers.
func TestTutorialsCanBeFollowed(t *testing.T) {
	for name := range tutorials {
		path := filepath.Join(kit.Root, "docs/tutorials", name+".md")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"**You will have**", "**It takes**", "**You need**", "\n## Five questions\n", "\n5. "} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s does not contain %q", path, want)
			}
		}
		if n := strings.Count(string(text), "\n   *Answer*: "); n != 5 {
			t.Errorf("%s has %d answers, want 5", path, n)
		}
		for line := range strings.Lines(string(text)) {
			if kind, found := strings.CutPrefix(strings.TrimSpace(line), "```sh "); found &&
				!strings.HasPrefix(kind, `notest="`) {
				t.Errorf("%s: unexpected mark %q of a block, want none or notest= with a reason", path, kind)
			}
		}
		if len(commandsOf(t, path, "").commands) < 5 {
			t.Errorf("%s has too few commands", path)
		}
	}
}
