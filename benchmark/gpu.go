package benchmark

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// gpu is the program that loads a GPU: it needs libraries of the driver, which a program that runs everywhere cannot
// link. It reads rounds, and writes seconds, work done, and the joules that the GPU has drawn so far, or -1.
type gpu struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	drawn   float64
}

func startGPU(program string) (*gpu, error) {
	g := &gpu{command: exec.Command(program)}
	g.command.Stderr = os.Stderr
	in, err := g.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := g.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	g.in, g.out = in, bufio.NewReader(out)
	if err := g.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s, which loads GPUs: %w", program, err)
	}
	if _, _, err := g.do(0); err != nil { // it finds the GPU
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *gpu) do(rounds int) (done float64, took time.Duration, err error) {
	var seconds float64
	if _, err = fmt.Fprintln(g.in, rounds); err == nil {
		_, err = fmt.Fscanln(g.out, &seconds, &done, &g.drawn)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("asking %s: %w", g.command.Path, err)
	}
	return done, max(time.Duration(seconds*float64(time.Second)), 1), nil
}

func (g *gpu) joules() (float64, bool) { return g.drawn, g.drawn >= 0 }

func (g *gpu) close() {
	_ = g.in.Close() // it ends at the end of its input
	_ = g.command.Wait()
}
