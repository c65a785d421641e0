package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// A process can run only one control plane, so each control plane runs in a separate process of this test binary.
// The environment variable planeVariable contains its options. It responds to requests of one line each and exits
// when its standard input is closed.
const planeVariable = "KUBENERGY_BENCH_PLANE"

func TestMain(m *testing.M) {
	if text := os.Getenv(planeVariable); text != "" {
		if err := servePlane(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// planeOptions configures a control plane.
type planeOptions struct {
	Dir   string `json:"dir"`
	Nodes int    `json:"nodes"` // number of simulated nodes
	QPS   int    `json:"qps"`   // request rate limit of kube-controller-manager

	// Memory is the limit up to which garbage is only collected on request. A collection blocks the control plane
	// and the scheduler on both cores for seconds, and it is random whether one occurs within a short measurement.
	Memory int64 `json:"memoryBytes"`
}

// planeAnswer is the response of a control plane.
type planeAnswer struct {
	Kubeconfig  string  `json:"kubeconfig"`
	CPU         float64 `json:"cpuSeconds"`
	Collections int64   `json:"collections"` // number of garbage collections
}

// collect is the request for a garbage collection before the response. All other requests only return a response.
const collect = "collect"

// servePlane runs a control plane in this process.
func servePlane(text string, questions io.Reader, answers io.Writer) error {
	var o planeOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(o.Memory)
	ctx := context.Background()
	c, err := lab.Start(ctx, lab.Options{
		Dir:                   o.Dir,
		APIServerArgs:         []string{"--enable-priority-and-fairness=false", "--delete-collection-workers=16"},
		ControllerManagerArgs: []string{fmt.Sprintf("--kube-api-qps=%d", o.QPS), "--kube-api-burst=30"},
	})
	if err != nil {
		return err
	}
	defer c.Stop()
	if err := c.AddNodes(ctx, cluster.Nodes(o.Nodes)); err != nil {
		return err
	}
	if err := c.AdmitHolds(ctx); err != nil {
		return err
	}
	say := func() error {
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			return err
		}
		var garbage debug.GCStats
		debug.ReadGCStats(&garbage)
		cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
		return json.NewEncoder(answers).Encode(planeAnswer{c.Kubeconfig(), cpu, garbage.NumGC})
	}
	if err := say(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(questions); lines.Scan(); {
		if lines.Text() == collect {
			runtime.GC()
		}
		if err := say(); err != nil {
			return err
		}
	}
	return nil
}

// plane is a control plane in a separate process.
type plane struct {
	kubeconfig string
	questions  io.Writer
	answers    *json.Decoder
}

func startPlane(t *testing.T, o planeOptions) *plane {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), planeVariable+"="+string(text))
	questions, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	process := kit.Start(t, filepath.Dir(o.Dir), "plane", cmd)
	t.Cleanup(func() { // the process exits when its standard input is closed
		questions.Close()
		<-process.Done()
	})
	p := &plane{questions: questions, answers: json.NewDecoder(answers)}
	p.kubeconfig = p.answer(t).Kubeconfig
	return p
}

func (p *plane) answer(t *testing.T) (a planeAnswer) {
	t.Helper()
	if err := p.answers.Decode(&a); err != nil {
		t.Fatalf("sending a request to the control plane: %v", err)
	}
	return a
}

// usage returns the resource usage of the control plane so far.
func (p *plane) usage(t *testing.T) planeAnswer { return p.ask(t, "usage") }

// collect runs a garbage collection in the control plane and returns its resource usage.
func (p *plane) collect(t *testing.T) planeAnswer { return p.ask(t, collect) }

func (p *plane) ask(t *testing.T, what string) planeAnswer {
	t.Helper()
	if _, err := fmt.Fprintln(p.questions, what); err != nil {
		t.Fatalf("sending a request to the control plane: %v", err)
	}
	return p.answer(t)
}
