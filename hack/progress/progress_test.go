package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"example.com/kubenergy/kubenergy/a"}
{"Action":"run","Package":"example.com/kubenergy/kubenergy/a","Test":"TestGood"}
{"Action":"output","Package":"example.com/kubenergy/kubenergy/a","Test":"TestGood","Output":"    a_test.go:3: fine\n"}
{"Action":"pass","Package":"example.com/kubenergy/kubenergy/a","Test":"TestGood"}
{"Action":"output","Package":"example.com/kubenergy/kubenergy/a","Test":"TestAway","Output":"=== RUN   TestAway\n"}
{"Action":"output","Package":"example.com/kubenergy/kubenergy/a","Test":"TestAway","Output":"    a_test.go:9: no data: open x: gone\n"}
{"Action":"output","Package":"example.com/kubenergy/kubenergy/a","Test":"TestAway","Output":"--- SKIP: TestAway (0.00s)\n"}
{"Action":"skip","Package":"example.com/kubenergy/kubenergy/a","Test":"TestAway"}
{"Action":"output","Package":"example.com/kubenergy/kubenergy/a","Output":"ok  \tx\t(cached)\n"}
{"Action":"pass","Package":"example.com/kubenergy/kubenergy/a","Elapsed":1.5}
{"Action":"output","Package":"d","Output":"testing: warning: no tests to run\n"}
{"Action":"output","Package":"d","Output":"ok  \td\t0.012s [no tests to run]\n"}
{"Action":"pass","Package":"d","Elapsed":0.012}
{"Action":"output","Package":"b","Output":"-test.shuffle 1795882182000000000\n"}
{"Action":"output","Package":"b","Test":"TestBad","Output":"    b_test.go:7: got 1, want 2\n"}
{"Action":"fail","Package":"b","Test":"TestBad"}
{"ImportPath":"c","Action":"build-output","Output":"c.go:1: syntax error\n"}
{"Action":"fail","Package":"b","Elapsed":2}
not json
{"Action":"skip","Package":"c"}
`

func TestResults(t *testing.T) {
	var out bytes.Buffer
	r := &results{packages: map[string]*result{}, to: &out}
	r.read(strings.NewReader(events))
	want := "ok    a  1.5s (cached)\nno tests  d  0.0s\nc.go:1: syntax error\n    b_test.go:7: got 1, want 2\nFAIL  b  2.0s  -shuffle=1795882182000000000\nnot json\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	name := filepath.Join(t.TempDir(), "out", "skipped.txt")
	for range 2 {
		if err := appendLines(name, r.skipped); err != nil {
			t.Fatal(err)
		}
	}
	out.Reset()
	if err := printSkipped(&out, name); err != nil {
		t.Fatal(err)
	}
	if want := "== skipped\n   no data: open x: gone\n      a TestAway\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("the list of skipped tests was not removed: %v", err)
	}
}

func TestPulseSaysThatItLives(t *testing.T) {
	var out bytes.Buffer
	p := newPulse(&out, func() string { return "go compiles" })
	p.stop()
	if _, err := p.Write([]byte("half a line")); err != nil {
		t.Fatal(err)
	}
	p.beat()
	p.stop()
	if want := "half a line\n     0 s: go compiles\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestCompiledPackages(t *testing.T) {
	var out bytes.Buffer
	c := compiled{to: &out}
	if c.String() != "" {
		t.Errorf("got %q before the first package", c.String())
	}
	if _, err := c.Write([]byte("k8s.io/api/core/v1\nx.go:3:1: syntax error\ngolang.org/x/net/http2\n")); err != nil {
		t.Fatal(err)
	}
	if want := ", 2 packages compiled, the last is golang.org/x/net/http2"; c.String() != want {
		t.Errorf("got %q, want %q", c.String(), want)
	}
	if want := "x.go:3:1: syntax error\n"; out.String() != want {
		t.Errorf("got output %q, want %q", out.String(), want)
	}
}
