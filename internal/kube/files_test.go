package kube

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

const goodSignals = `
apiVersion: kubenergy.io/v1alpha1
kind: Signals
sites:
- name: home
  zone: DE
  pue: 1.2
  carbon:
    start: 2026-06-01T12:00:00Z
    step: 1h
    values: [300, 200.5, 100]
    asOf: "2026-06-01T11:55:00Z"
    quality: measured
- name: north
  zone: "NO"
`

const goodProfiles = `
apiVersion: kubenergy.io/v1alpha1
kind: PowerProfiles
default: server
profiles:
- name: server
  idleWatts: 100
  maxWatts: 300
  quality: estimated
`

// write replaces a file by rename, as writers of the files must.
func write(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// TestAFileThatPanics verifies that a file that makes its reader panic is treated as unreadable, is logged once,
// and that its previous content remains in use.
func TestAFileThatPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "good")
	f, log := File[string]{}, slog.New(slog.DiscardHandler)
	read := func(data []byte) (string, error) {
		if string(data) != "good" {
			panic("planted")
		}
		return string(data), nil
	}
	f.Poll(path, read, log)
	write(t, path, "bad")
	for range 2 {
		if f.Poll(path, read, log); f.Err == nil || f.Content != "good" {
			t.Errorf("content %q, error %v", f.Content, f.Err)
		}
	}
	if again := panics.Note("files"); again != 2 {
		t.Errorf("%d panics are counted", again-1)
	}
}

func TestFilesFailOpen(t *testing.T) {
	var log bytes.Buffer
	folder := t.TempDir()
	f := &Files{
		SignalsFile:  filepath.Join(folder, "signals.yaml"),
		ProfilesFile: filepath.Join(folder, "profiles.yaml"),
		Log:          slog.New(slog.NewTextHandler(&log, nil)),
	}
	if v := f.View(); v == nil || len(v.Sites()) != 0 {
		t.Fatalf("before the first refresh, the view is %+v", v)
	}
	state := func() string {
		log.Reset()
		f.Refresh()
		f.Refresh() // without a change, errors are not logged again
		v, parts := f.View(), []string{}
		for _, s := range v.Sites() {
			if s.Carbon.Series != nil {
				parts = append(parts, s.Name+" with a signal")
			} else {
				parts = append(parts, s.Name)
			}
		}
		if v.Profile("server") != nil {
			parts = append(parts, "server")
		}
		return strings.Join(parts, ", ")
	}
	warnings := func() int { return strings.Count(log.String(), "level=WARN") }

	steps := []struct {
		name         string
		do           func()
		want         string
		wantWarnings int
	}{
		{"no files", func() {}, "", 2},
		{"profiles only", func() { write(t, f.ProfilesFile, goodProfiles) }, "server", 0},
		{"both", func() { write(t, f.SignalsFile, goodSignals) }, "home with a signal, north, server", 0},
		{"garbage", func() { write(t, f.SignalsFile, "sites: [") }, "home, north, server", 1},
		{"deleted", func() { os.Remove(f.SignalsFile) }, "home, north, server", 1},
		{"back", func() { write(t, f.SignalsFile, goodSignals) }, "home with a signal, north, server", 0},
		{"half written", func() { write(t, f.SignalsFile, goodSignals[:150]) }, "home, north, server", 1},
		{"profiles gone", func() { os.Remove(f.ProfilesFile) }, "home, north", 1},
	}
	for _, s := range steps {
		s.do()
		if got := state(); got != s.want {
			t.Errorf("%s: got %q, want %q", s.name, got, s.want)
		}
		if got := warnings(); got != s.wantWarnings {
			t.Errorf("%s: %d warnings, want %d:\n%s", s.name, got, s.wantWarnings, &log)
		}
	}
}

func TestFilesRefuse(t *testing.T) {
	replace := func(old, with string) string {
		if !strings.Contains(goodSignals, old) {
			t.Fatalf("the valid file does not contain %q", old)
		}
		return strings.Replace(goodSignals, old, with, 1)
	}
	for _, tc := range []struct{ name, text, want string }{
		{"NaN", replace("200.5", ".nan"), "NaN"},
		{"infinite", replace("200.5", ".inf"), "Inf"},
		{"negative", replace("200.5", "-200"), "want 0 to 10000"},
		{"another unit", replace("200.5", "200500"), "want 0 to 10000"},
		{"text", replace("200.5", "many"), "json"},
		{"unknown field", replace("zone: DE", "zon: DE"), "unknown field"},
		{"unknown field of a signal", replace("quality:", "qualty:"), "unknown field"},
		{"field twice", replace("zone: DE", "zone: DE\n  zone: FR"), "already set"},
		{"kind", replace("kind: Signals", "kind: PowerProfiles"), `"PowerProfiles"`},
		{"version", replace("v1alpha1", "v2"), "v2"},
		{"empty site", replace("- name: north\n  zone: \"NO\"", "- null"), "site 1 is empty"},
		{"no values", replace("[300, 200.5, 100]", "[]"), "no values"},
		{"step", replace("1h", "0s"), "step"},
		{"empty", "", "want"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			f := &Files{
				SignalsFile: filepath.Join(t.TempDir(), "signals.yaml"), Log: slog.New(slog.NewTextHandler(&log, nil)),
			}
			write(t, f.SignalsFile, tc.text)
			f.Refresh()
			if n := len(f.View().Sites()); n != 0 {
				t.Errorf("the view has %d sites", n)
			}
			if !strings.Contains(log.String(), "cannot be used") ||
				!strings.Contains(log.String(), strings.ReplaceAll(tc.want, `"`, `\"`)) {
				t.Errorf("log does not contain %q: %s", tc.want, &log)
			}
		})
	}
}

func TestFilesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Files{SignalsFile: filepath.Join(t.TempDir(), "signals.yaml"), Log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		synctest.Wait()
		if f.View().Site("home") != nil {
			t.Error("the view has a site without a file")
		}
		write(t, f.SignalsFile, goodSignals)
		bubble.Advance(pollInterval)
		if site := f.View().Site("home"); site == nil {
			t.Error("the file has not been read")
		} else if got := site.Carbon.Series.Value(1); got != 200.5 {
			t.Errorf("second value is %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
