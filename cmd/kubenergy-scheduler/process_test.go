package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
)

const asScheduler = "KUBENERGY_TEST_AS_SCHEDULER"

// TestMain runs the scheduler instead of the tests if the environment variable is set. kube-scheduler installs its
// signal handler only once per process and exits the process itself, so it must run in a child process.
func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestASchedulerThatCannotBeBuiltExits checks that goroutines started before the failure do not keep the process
// running.
func TestASchedulerThatCannotBeBuiltExits(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string { return kit.Write(t, filepath.Join(folder, name), text) }
	kubeconfig := write("kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}],
contexts: [{name: c, context: {cluster: c}}]}`)
	config := write("config.yaml", `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: "`+kubeconfig+`", contentType: application/json}
leaderElection: {leaderElect: false}
profiles:
- schedulerName: kubenergy-scheduler
  plugins: {multiPoint: {enabled: [{name: KubEnergy}, {name: KubEnergyHold}]}}
  pluginConfig:
  - name: KubEnergy
    args: {apiVersion: kubescheduler.config.kubenergy.io/v1alpha1, kind: KubEnergyArgs, shortlist: -1}
`)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	// If a signals file is configured, even a missing one, the scheduler does not wait for policies.
	cmd := exec.CommandContext(ctx, executable, "--config="+config, "--secure-port=0",
		"--kubenergy-signals="+filepath.Join(folder, "none"))
	cmd.Env = append(os.Environ(), asScheduler+"=1")
	output, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.Contains(string(output), "shortlist") {
		t.Errorf("the scheduler exited with %v, want exit code 1 and an error about the shortlist:\n%s", err, output)
	}
}
