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

// A process has one control plane, and some are compared: each has a process of its own, which is this program once
// more. It is told to do so by planeVariable, asked line by line, and ends when its standard input closes.
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

// planeOptions are what a control plane is started with.
type planeOptions struct {
	Dir   string `json:"dir"`
	Nodes int    `json:"nodes"` // simulated
	QPS   int    `json:"qps"`   // of kube-controller-manager

	// No garbage is collected but when the process is told to, as long as this lasts: a collection takes both cores
	// from all of a control plane, and from the scheduler, for seconds at a time, and whether one falls into ten
	// seconds or a minute is chance.
	Memory int64 `json:"memoryBytes"`
}

// planeAnswer is what a control plane says of itself.
type planeAnswer struct {
	Kubeconfig  string  `json:"kubeconfig"`
	CPU         float64 `json:"cpuSeconds"`
	Collections int64   `json:"collections"` // of garbage
}

// collect asks for a collection of garbage before the answer; any other line is for an answer only.
const collect = "collect"

// servePlane is the process of a control plane.
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

// plane is a control plane in a process of its own.
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
	t.Cleanup(func() { // it ends when its standard input closes
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
		t.Fatalf("asking the control plane: %v", err)
	}
	return a
}

// usage returns what the control plane has used so far.
func (p *plane) usage(t *testing.T) planeAnswer { return p.ask(t, "usage") }

// collect lets the control plane collect its garbage, and returns what it has used by then.
func (p *plane) collect(t *testing.T) planeAnswer { return p.ask(t, collect) }

func (p *plane) ask(t *testing.T, what string) planeAnswer {
	t.Helper()
	if _, err := fmt.Fprintln(p.questions, what); err != nil {
		t.Fatalf("asking the control plane: %v", err)
	}
	return p.answer(t)
}
