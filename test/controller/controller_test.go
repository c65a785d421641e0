package controller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// controllerProcess is a controller that runs in its own process, with the data needed to send requests to it.
type controllerProcess struct {
	*kit.Process
	dir    string // contains the log
	url    string
	caFile string
	state  string
	client *http.Client
	path   string // path of the binary
	args   []string
	env    []string
	token  string
}

// controller starts the released controller with the permissions of its service account. The ledger is stored in a
// temporary directory, or in the database that env configures.
func (w *world) controller(t *testing.T, env []string, args ...string) *controllerProcess {
	t.Helper()
	return w.controllerIn(t, t.TempDir(), env, args...)
}

func (w *world) controllerIn(t *testing.T, state string, env []string, args ...string) *controllerProcess {
	t.Helper()
	kubeconfig, _ := w.Account(t, "kubenergy-controller")
	address := kit.Address(t)
	_, port, _ := strings.Cut(address, ":")
	c := &controllerProcess{
		dir: w.Dir, path: kit.Build(t, "./cmd/kubenergy-controller"), url: "https://localhost:" + port,
		state: state, caFile: filepath.Join(state, "api.crt"), env: env,
	}
	c.args = append([]string{
		"--kubeconfig=" + kubeconfig, "--state-dir=" + state, "--api-bind-address=" + address,
		"--metrics-bind-address=0",
		"--health-probe-bind-address=0", "--leader-elect=false", "--log-format=text", "--api-name=localhost",
		"--agent-namespace=" + cluster.AgentNamespace,
	}, args...)
	t.Cleanup(func() {
		if c.Process != nil {
			c.End(t)
		}
	})
	c.begin(t)
	c.token = w.Token(t, "kubenergy-viewer", nil)
	return c
}

// begin starts or restarts the process and waits until it responds to requests.
func (c *controllerProcess) begin(t *testing.T) {
	t.Helper()
	c.launch(t)
	kit.Eventually(t, time.Minute, "the controller responds to requests",
		func() bool { return c.answers(t) }, c.Process)
}

// launch starts the process without waiting for it to become ready.
func (c *controllerProcess) launch(t *testing.T) {
	t.Helper()
	cmd := exec.Command(c.path, c.args...)
	cmd.Env = append(os.Environ(), c.env...)
	p, err := kit.Launch(c.dir, "controller", cmd)
	if err != nil {
		t.Fatal(err)
	}
	c.Process, c.client = p, nil
}

func (c *controllerProcess) answers(t *testing.T) bool {
	if c.client == nil {
		var err error
		if c.client, err = kit.Trusting(c.caFile); err != nil {
			return false
		}
	}
	status, _ := c.get(t, "/api/v1/nodes/power", "")
	return status == http.StatusUnauthorized
}

// get sends a GET request with the given token.
func (c *controllerProcess) get(t *testing.T, path, token string) (status int, body string) {
	t.Helper()
	return kit.Get(t.Context(), c.client, c.url+path, token)
}

// ask sends a GET request as the viewer and decodes the response.
func (c *controllerProcess) ask(t *testing.T, path string, into any) error {
	t.Helper()
	var status int
	var body string
	kit.Eventually(t, time.Minute, "requests for "+path+" are not rate-limited",
		func() bool { // tests send more requests than users
			status, body = c.get(t, path, c.token)
			return status != http.StatusTooManyRequests
		})
	if status != http.StatusOK {
		return fmt.Errorf("%s: %d: %s", path, status, body)
	}
	return json.Unmarshal([]byte(body), into)
}

// scheduler starts the released scheduler with the default configuration and waits until it is ready.
func (w *world) scheduler(t *testing.T, c *controllerProcess) {
	t.Helper()
	kubeconfig, _ := w.Account(t, "kubenergy-scheduler")
	token := kit.Write(t, filepath.Join(t.TempDir(), "token"), w.Token(t, "kubenergy-scheduler", nil))
	s := cluster.StartScheduler(t, w.Dir, "scheduler", kubeconfig, func(config map[string]any) {
		config["leaderElection"] = map[string]any{"leaderElect": false}
	}, "--kubenergy-live-url="+c.url, "--kubenergy-live-token-file="+token, "--kubenergy-live-ca-file="+c.caFile)
	kit.Eventually(t, time.Minute, "the scheduler is ready", func() bool { return s.Ready(t.Context()) }, s.Process)
}
