package app

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestSharedStops(t *testing.T) {
	s := &shared{options: defaultOptions(), log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	deps, err := s.start(ctx, &rest.Config{Host: "http://127.0.0.1:1"}) // no server listens on this port
	if err != nil {
		t.Fatal(err)
	}
	if deps.View() == nil || deps.Gate == nil {
		t.Errorf("deps are %+v", deps)
	}
	cancel()
	stopped := make(chan struct{})
	go func() { s.wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		t.Error("components are still running after a minute")
	}
}

func TestBadOptionsKeepTheSchedulerFromStarting(t *testing.T) {
	cmd, _ := Command()
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{
		"--kubenergy-hold-rule=best", "--kubenergy-min-saving=2", "--kubenergy-release-rate=NaN",
		"--kubenergy-max-ramp=-500",
	})
	err := cmd.Execute()
	for _, want := range []string{
		`--kubenergy-hold-rule is "best"`, "--kubenergy-min-saving is 2", "--kubenergy-release-rate is NaN",
		"--kubenergy-max-ramp is -500",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
}

func TestHelpListsOurFlags(t *testing.T) {
	cmd, _ := Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--leader-elect", "KubEnergy flags:", "--kubenergy-signals file"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help does not contain %q", want)
		}
	}
}

// TestEmptyArgumentsAreNone verifies that empty arguments are accepted as in kube-scheduler, because a variable in
// a manifest may expand to an empty string.
func TestEmptyArgumentsAreNone(t *testing.T) {
	for _, c := range []struct {
		args  []string
		wrong bool
	}{{nil, false}, {[]string{""}, false}, {[]string{"", "energy"}, true}, {[]string{"energy"}, true}} {
		cmd, _ := Command()
		if err := cmd.ValidateArgs(c.args); (err != nil) != c.wrong {
			t.Errorf("%q: error %v", c.args, err)
		}
	}
}
