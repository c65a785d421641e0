package systemd

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metering "github.com/kubenergy/kubenergy/internal/agent"
)

const (
	agent      = "kubenergy-agent.service"
	hypervisor = "kubenergy-agent.service.d/hypervisor.conf"
	graphics   = "kubenergy-agent.service.d/gpu.conf"
	share      = "virtiofsd@.service"
	socket     = "virtiofsd@.socket"
	mount      = "var-scaphandre.mount"
)

// A unit maps sections and keys to values, in the order of the file. As in systemd, an empty value resets the list.
type unit map[string]map[string][]string

// add merges the settings of a file into the unit.
func (u unit) add(text string) error {
	section := ""
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
			continue
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			section = line[1 : len(line)-1]
			if u[section] == nil {
				u[section] = map[string][]string{}
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section == "" || strings.HasSuffix(line, "\\") {
			return fmt.Errorf("line %d: %q", n+1, line)
		}
		if value == "" {
			u[section][key] = []string{}
		} else {
			u[section][key] = append(u[section][key], value)
		}
	}
	return nil
}

func read(t *testing.T, files ...string) unit {
	t.Helper()
	u := unit{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = u.add(string(text))
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return u
}

func (u unit) is(section, key string, want ...string) error {
	got, ok := u[section][key]
	if !ok || !slices.Equal(got, want) && len(got)+len(want) > 0 {
		return fmt.Errorf("%s is %q, want %q", key, got, want)
	}
	return nil
}

// hardened contains the hardening settings of both services.
var hardened = map[string]string{
	"CapabilityBoundingSet": "", "AmbientCapabilities": "", "NoNewPrivileges": "yes", "ProtectSystem": "strict",
	"ProtectHome": "yes",
	"PrivateTmp":  "yes", "PrivateDevices": "yes", "DevicePolicy": "closed", "PrivateIPC": "yes",
	"PrivateMounts":   "yes",
	"ProtectHostname": "yes", "ProtectClock": "yes", "ProtectKernelTunables": "yes", "ProtectKernelModules": "yes",
	"ProtectKernelLogs": "yes", "ProtectControlGroups": "yes", "RestrictNamespaces": "yes", "RestrictRealtime": "yes",
	"RestrictSUIDSGID": "yes", "LockPersonality": "yes", "MemoryDenyWriteExecute": "yes", "RemoveIPC": "yes",
	"SystemCallArchitectures": "native", "SystemCallErrorNumber": "EPERM", "MemoryMax": "64M", "CPUQuota": "20%",
	"OOMPolicy": "stop", "UMask": "0077", "ProtectProc": "invisible", "KeyringMode": "private",
}

func TestServicesAreHardened(t *testing.T) {
	for _, file := range []string{agent, share} {
		u := read(t, file)
		for key, want := range hardened {
			values := []string{want}
			if want == "" {
				values = nil
			}
			if err := u.is("Service", key, values...); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		for _, key := range []string{"TasksMax", "LimitNOFILE"} {
			if n, err := strconv.Atoi(strings.Join(u["Service"][key], "")); err != nil || n < 1 {
				t.Errorf("%s: %s is %q", file, key, u["Service"][key])
			}
		}
		filter := u["Service"]["SystemCallFilter"]
		if len(filter) != 2 || !strings.HasPrefix(filter[0], "@system-service") ||
			!strings.HasPrefix(filter[1], "~@privileged @resources") {
			t.Errorf("%s: system calls %q", file, filter)
		}
	}
}

func TestAgent(t *testing.T) {
	u := read(t, agent)
	for key, want := range map[string][]string{
		"PrivateNetwork": {"no"}, "RestrictAddressFamilies": {"AF_INET AF_INET6"}, "StateDirectory": {"kubenergy"},
		"StateDirectoryMode": {"0700"},
		"EnvironmentFile":    {"-/etc/default/kubenergy-agent"}, "Restart": {"always"},
		"RestartPreventExitStatus": {"2"},
		"ReadOnlyPaths":            {"/run"}, "BindReadOnlyPaths": {"/sys"},
	} {
		if err := u.is("Service", key, want...); err != nil {
			t.Error(err)
		}
	}
	if u["Service"]["ReadWritePaths"] != nil || u["Service"]["RuntimeDirectory"] != nil {
		t.Error("the unit may write to more than its state directory")
	}
	checkFlags(t, u)

	u = read(t, agent, hypervisor)
	for key, want := range map[string][]string{
		"RuntimeDirectory": {"kubenergy/guests"}, "RuntimeDirectoryMode": {"0700"}, "RuntimeDirectoryPreserve": {"yes"},
	} {
		if err := u.is("Service", key, want...); err != nil {
			t.Error(err)
		}
	}
	flags := checkFlags(t, u)
	if flags["--guests-dir"] != "/run/"+u["Service"]["RuntimeDirectory"][0] || flags["--interval"] != "500ms" {
		t.Errorf("flags %v", flags)
	}
	if _, ok := flags["--vms"]; !ok {
		t.Errorf("flags %v", flags)
	}
	for key, want := range map[string]string{
		"PrivateDevices": "no", "DeviceAllow": "char-nvidia* rw", "ProtectProc": "default",
	} {
		if err := read(t, graphics).is("Service", key, want); err != nil {
			t.Error(err)
		}
	}
	// The example environment file must contain only existing flags, and must not set any.
	text, err := os.ReadFile("kubenergy-agent.default")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(text), "\nKUBENERGY_AGENT_ARGS=\"\"\n") {
		t.Error("the example of the environment file sets options")
	}
	for _, name := range regexp.MustCompile(`--[a-z-]+`).FindAllString(string(text), -1) {
		if name != "--help" && !slices.Contains(known, name) {
			t.Errorf("the agent has no flag %s", name)
		}
	}
	routes, err := os.ReadFile("../../test/surface/testdata/routes.txt")
	if err != nil {
		t.Fatal(err)
	}
	push := regexp.MustCompile(`--push-url=https://[^/\s]+(\S+)`).FindStringSubmatch(string(text))
	if push == nil || !strings.Contains(string(routes), "\nPOST "+push[1]+" ") {
		t.Errorf("the controller does not serve the URL %q of the example", push)
	}
}

// known lists the flags of the agent.
var known = func() (names []string) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	options := metering.DefaultOptions()
	options.AddFlags(flags)
	flags.VisitAll(func(f *flag.Flag) { names = append(names, "--"+f.Name) })
	return append(names, "--version")
}()

func checkFlags(t *testing.T, u unit) map[string]string {
	t.Helper()
	command := u["Service"]["ExecStart"]
	if len(command) != 1 {
		t.Fatalf("commands %q", command)
	}
	words := strings.Fields(command[0])
	if words[0] != "/usr/local/bin/kubenergy-agent" || words[len(words)-1] != "$KUBENERGY_AGENT_ARGS" {
		t.Errorf("command %q", command[0])
	}
	flags := map[string]string{}
	for _, word := range words[1 : len(words)-1] {
		name, value, _ := strings.Cut(word, "=")
		flags[name] = value
		if !slices.Contains(known, name) {
			t.Errorf("the agent has no flag %s", name)
		}
	}
	// The agent listens only on localhost by default. A later flag of the same name overrides this.
	if flags["--listen"] != "127.0.0.1:2112" {
		t.Errorf("the agent listens on %q, want 127.0.0.1:2112", flags["--listen"])
	}
	if flags["--state-dir"] != "/var/lib/"+u["Service"]["StateDirectory"][0] {
		t.Errorf("flags %v", flags)
	}
	return flags
}

func TestShare(t *testing.T) {
	u := read(t, share)
	for key, want := range map[string][]string{
		"DynamicUser": {"yes"}, "PrivateNetwork": {"yes"}, "PrivateUsers": {"yes"},
		"RestrictAddressFamilies": {"AF_UNIX"},
		"BindReadOnlyPaths":       {"/run/kubenergy/guests/%i"}, "TemporaryFileSystem": {"/run:ro /var:ro"},
		"IPAddressDeny": {"any"},
	} {
		if err := u.is("Service", key, want...); err != nil {
			t.Error(err)
		}
	}
	command := " " + strings.Join(u["Service"]["ExecStart"], "") + " "
	for _, want := range []string{
		"/usr/libexec/virtiofsd", "--fd=3", "--shared-dir=/run/kubenergy/guests/%i", "--cache=never", "--readonly",
		"--sandbox=none", "--seccomp=kill",
	} {
		if !strings.Contains(command, " "+want+" ") {
			t.Errorf("virtiofsd without %s", want)
		}
	}
	s := read(t, socket)
	for key, want := range map[string][]string{
		"ListenStream": {"/run/kubenergy-virtiofsd/%i.sock"}, "SocketUser": {"libvirt-qemu"}, "SocketMode": {"0600"},
	} {
		if err := s.is("Socket", key, want...); err != nil {
			t.Error(err)
		}
	}
	if s["Socket"]["Accept"] != nil {
		t.Error("Accept must not be set because virtiofsd expects the listening socket")
	}
}

func TestMount(t *testing.T) {
	u := read(t, mount)
	for key, want := range map[string]string{
		"What": "kubenergy", "Where": "/var/scaphandre", "Type": "virtiofs", "Options": "ro,nosuid,nodev,noexec",
	} {
		if err := u.is("Mount", key, want); err != nil {
			t.Error(err)
		}
	}
	if name := strings.ReplaceAll(strings.TrimPrefix(u["Mount"]["Where"][0], "/"), "/", "-") + ".mount"; name != mount {
		t.Errorf("the name of the mount unit must be %s", name)
	}
	if err := read(t, agent).is("Unit", "After", mount+" network.target"); err != nil {
		t.Error(err)
	}
}

// TestAnalyze runs systemd-analyze on the units in a temporary root that contains their executables.
func TestAnalyze(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze: ", err)
	}
	if _, err := os.Stat("/usr/lib/systemd/system/sysinit.target"); err != nil {
		t.Skip("needs the units of systemd: ", err)
	}
	if help, err := exec.CommandContext(t.Context(), analyze, "--help").CombinedOutput(); err != nil ||
		!strings.Contains(string(help), "--offline") {
		t.Skip("needs systemd-analyze from systemd 250 or later")
	}
	root := t.TempDir()
	units := filepath.Join(root, "etc/systemd/system")
	if err := os.CopyFS(units, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := copyUnits(filepath.Join(root, "usr/lib/systemd/system")); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"usr/local/bin/kubenergy-agent", "usr/libexec/virtiofsd", "usr/bin/mkdir", "bin/sh"} {
		path := filepath.Join(root, program)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755)); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	verify := func() string {
		cmd := exec.CommandContext(t.Context(), analyze, "verify", "--root="+root, agent, "virtiofsd@web-1.service",
			"virtiofsd@web-1.socket", mount, "kubenergy-slurm-token.service", "kubenergy-slurm-token.timer")
		out, err := cmd.CombinedOutput()
		if err != nil && len(out) == 0 {
			return err.Error()
		}
		return string(out)
	}
	if out := verify(); out != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
	for name, most := range map[string]float64{agent: 2.0, "virtiofsd@web-1.service": 0.5} {
		out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager",
			"--root="+root, name).CombinedOutput()
		if err != nil {
			t.Errorf("systemd-analyze security: %v\n%s", err, out)
			continue
		}
		m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if m == nil {
			t.Errorf("systemd-analyze security:\n%s", out)
			continue
		}
		exposure, err := strconv.ParseFloat(string(m[1]), 64)
		t.Logf("%s: exposure %v of 10", name, exposure)
		if err != nil || exposure > most {
			t.Errorf("exposure level of %s is %v, want at most %v", name, exposure, most)
		}
	}
	// systemd-analyze must report an invalid unit.
	if err := os.WriteFile(filepath.Join(units, mount), []byte("[Mount]\nWhat=kubenergy\nWhere=/elsewhere\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if out := verify(); out == "" {
		t.Error("systemd-analyze verify accepted an invalid unit")
	}
}

// copyUnits copies the units of systemd. Symbolic links are skipped because they may point outside of the
// directory.
func copyUnits(to string) error {
	const from = "/usr/lib/systemd/system"
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
