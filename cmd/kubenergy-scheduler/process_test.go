package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const asScheduler = "KUBENERGY_TEST_AS_SCHEDULER"

// kube-scheduler takes signals once in a process and ends it by itself, so the test binary is the scheduler where it is told so.
func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process runs the scheduler against an API server, with args of KubEnergy and more of kube-scheduler's configuration.
func process(t *testing.T, url, energyArgs, configuration string) (cmd *exec.Cmd, output *bytes.Buffer) {
	t.Helper()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := write("kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "`+url+`"}}],
contexts: [{name: c, context: {cluster: c}}]}`)
	config := write("config.yaml", `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: "`+kubeconfig+`", contentType: application/json}
profiles:
- schedulerName: kubenergy-scheduler
  plugins: {multiPoint: {enabled: [{name: KubEnergy}, {name: KubEnergyHold}]}}
  pluginConfig:
  - name: KubEnergy
    args: {apiVersion: kubescheduler.config.kubenergy.io/v1alpha1, kind: KubEnergyArgs, `+energyArgs+`}
`+configuration)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	// With a file, even one that is not there, nobody waits for policies.
	cmd = exec.CommandContext(ctx, executable, "--config="+config, "--secure-port=0", "--kubenergy-signals="+filepath.Join(folder, "none"))
	cmd.Env = append(os.Environ(), asScheduler+"=1")
	output = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, output
}

// exitCode waits for the end of a process.
func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode() // -1 of one that had to be killed
}

// What was started beside a scheduler that could not be built ends with it.
func TestASchedulerThatCannotBeBuiltExits(t *testing.T) {
	t.Parallel()
	cmd, output := process(t, "http://127.0.0.1:1", "shortlist: -1", "leaderElection: {leaderElect: false}")
	if code := exitCode(t, cmd); code != 1 || !strings.Contains(output.String(), "shortlist") {
		t.Errorf("exit code %d, want 1 and a word on the shortlist:\n%s", code, output)
	}
}
