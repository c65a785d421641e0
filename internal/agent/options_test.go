package agent_test

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent"
)

func TestFlagsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	options := agent.DefaultOptions()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	options.AddFlags(flags)
	flags.VisitAll(func(f *flag.Flag) {
		if !strings.Contains(string(doc), "`--"+f.Name) {
			t.Errorf("docs/reference/agent.md does not mention --%s", f.Name)
		}
	})
}

func TestDefaultsAreValid(t *testing.T) {
	if err := agent.DefaultOptions().Validate(); err != nil {
		t.Error(err)
	}
	hypervisor := agent.DefaultOptions()
	hypervisor.Host.VMs = true
	if err := hypervisor.Validate(); err != nil {
		t.Error(err)
	}
}

// TestWrongOptions verifies that an invalid option causes a one-line error that contains its name, and an exit code
// that prevents supervisors from restarting the agent.
func TestWrongOptions(t *testing.T) {
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--bogus", "bogus"},
		{"extra", "extra"},
		{"--interval=abc", "interval"},
		{"--interval=1ms", "--interval"},
		{"--batch-interval=1ns", "--batch-interval"},
		{"--idle=maybe", "maybe"},
		{"--meters=abacus", "--meters"},
		{"--calibrate=rapl", "calibrate"},
		{"--calibrate=rapl=-1", "--calibrate"},
		{"--listen=2112", "--listen"},
		{"--push-url=ftp://x", "--push-url"},
		{"--push-cert-file=x", "--push-key-file"},
		{"--node-name=a b", "--node-name"},
		{"--log-format=xml", "--log-format"},
		{"--max-consumers=0", "--max-consumers"},
	} {
		cmd := exec.Command(path, c.args)
		stop := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		out, _ := cmd.CombinedOutput()
		stop.Stop()
		if text := strings.TrimSpace(string(out)); cmd.ProcessState.ExitCode() != 2 ||
			!strings.Contains(text, c.want) || strings.Contains(text, "\n") {
			t.Errorf("%s: exit code %d and %q, want 2 and a line with %q", c.args, cmd.ProcessState.ExitCode(), text,
				c.want)
		}
	}
}
