package surface

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/reference"
)

var binaries = []string{
	"kubenergy", "kubenergy-agent", "kubenergy-controller", "kubenergy-karmada", "kubenergy-lab", "kubenergy-power",
	"kubenergy-scheduler",
}

// call runs a binary without a cluster and returns its exit code and output.
func call(t *testing.T, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kit.Build(t, "./cmd/"+name), args...)
	home := t.TempDir()
	for name, content := range map[string]string{
		"token": "token", "jobs.csv": "id,submit_time,duration,cpu\na,0,1h,1\n",
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Dir, cmd.Env = home, []string{"HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none"), "NODE_NAME=node"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestFlags lists the flags in the help of every binary and command.
func TestFlags(t *testing.T) {
	f := facts{}
	for _, name := range binaries {
		reference.EachCommand(help(t), f.addHelp, name)
	}
	_, names, _ := call(t, "kubenergy", "strategies")
	part := ""
	for line := range strings.Lines(names) {
		if name, indented := strings.CutPrefix(line, "  "); indented {
			f.add("strategy", part, strings.Fields(name)[0])
		} else {
			part = line
		}
	}
	f.check(t, "flags")
}

var (
	longFlag = regexp.MustCompile(`^ +((?:-\w, )?--[\w-]+)(\[=\S+\]|)(?: (\S+(?: \S+)*?))?   +(.*)$`) // of package pflag
	// plainFlag matches the format of package flag.
	plainFlag = regexp.MustCompile(`^  (-[\w-]+)(?: ([^\t]+))?(?:\t(.*))?$`)
	byDefault = regexp.MustCompile(`.*\(default (.*)\)$`)
	aliases   = regexp.MustCompile(`(?m)^Aliases:\n +(.*)$`)
	usage     = regexp.MustCompile(`(?m)^Usage:\n +(.*)$`)
)

// help returns a function that returns the help of a command.
func help(t *testing.T) func(words ...string) string {
	return func(words ...string) string {
		t.Helper()
		_, stdout, stderr := call(t, words[0], append(slices.Clone(words[1:]), "--help")...)
		return stdout + stderr
	}
}

// addHelp adds the flags, arguments, aliases and subcommands in the help of a command.
func (f facts) addHelp(words []string, help string, below []string) {
	name := strings.Join(words, " ")
	f.add("command", name)
	for _, sub := range below {
		f.add("command", name, sub)
	}
	for _, m := range usage.FindAllStringSubmatch(help, -1) {
		f.add("usage", m[1])
	}
	for _, m := range aliases.FindAllStringSubmatch(help, -1) {
		f.add("aliases", name+":", m[1])
	}
	if name == "kubenergy-scheduler" { // other flags belong to kube-scheduler
		_, help, _ = strings.Cut(help, "KubEnergy flags:\n")
		help, _, _ = strings.Cut(help, "\n\n")
	}
	help, _, _ = strings.Cut(help, "Global Flags:\n") // listed with the root command
	all := strings.Split(help, "\n")
	for i, line := range all {
		flag := plainFlag.FindStringSubmatch(line)
		if flag != nil && i+1 < len(all) {
			flag[3] += strings.TrimSpace(all[i+1])
		} else if m := longFlag.FindStringSubmatch(line); m != nil {
			flag = []string{"", m[1], m[2] + m[3], m[4]}
		}
		if flag == nil {
			continue
		}
		words := []string{name, flag[1], flag[2]}
		if strings.HasSuffix(flag[1], "--output") || strings.HasSuffix(flag[1], "-format") {
			words = append(words, "("+flag[3]+")") // the usage contains the formats
		} else if m := byDefault.FindStringSubmatch(flag[3]); m != nil {
			words = append(words, "=", m[1])
		}
		f.add(words...)
	}
}

// TestLab compares the part of docs/reference/cli.md about kubenergy-lab with its help.
func TestLab(t *testing.T) {
	reference.Hold(t, "docs/reference/cli.md", "./test/surface -run TestLab",
		reference.Commands(help(t), "kubenergy-lab"), *rewrite)
}

// TestExits runs the listed command lines without a cluster and checks their exit codes and output streams. New
// command lines must be added to the list manually.
func TestExits(t *testing.T) {
	f := facts{}
	for _, fact := range lines(t, "testdata/exits.txt") {
		line, _, _ := strings.Cut(fact, " = ")
		words := strings.Fields(line)
		code, stdout, stderr := call(t, words[0], words[1:]...)
		words = append(words, "=", strconv.Itoa(code))
		if stdout != "" {
			words = append(words, "stdout")
		}
		if stderr != "" {
			words = append(words, "stderr")
		}
		f.add(words...)
	}
	f.check(t, "exits")
}
