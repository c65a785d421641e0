package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/kube/standalone"
	"github.com/kubenergy/kubenergy/test/kit"
)

// fault describes a failure of writes of objects.json.
type fault struct {
	name     string
	torn     bool // a temporary file with half of the data remains
	replaced bool // the new file takes effect despite the error
	dies     bool // the process crashes during the first write
	count    int  // number of consecutive failed writes
	err      error
}

// forLong is more than the number of writes in a few passes. An operator frees the disk afterwards.
const forLong = 6

var (
	errUncertain = fmt.Errorf("%w: %w", standalone.ErrUncertain, syscall.EIO)
	faults       = []fault{
		{name: "full", count: 1, err: syscall.ENOSPC},
		{name: "full for long", count: forLong, err: syscall.ENOSPC},
		{name: "torn temporary file", torn: true, count: 1, err: syscall.EIO},
		{name: "rename fails", count: 1, err: errUncertain},
		{name: "rename fails for long", count: forLong, err: errUncertain},
		{name: "directory is not synced", replaced: true, count: 1, err: errUncertain},
		{name: "directory is not synced, also after restoring", replaced: true, count: 2, err: errUncertain},
		{name: "directory is not synced for long", replaced: true, count: forLong, err: errUncertain},
		{name: "killed before the rename", torn: true, dies: true, count: 1},
		{name: "killed after the rename", replaced: true, dies: true, count: 1},
	}
)

// killed is the panic value of a write that simulates a crash.
type killed struct{}

// disk is a file system with a fault that starts at write number first, counted from 0.
type disk struct {
	fault
	first, writes int
}

func (d *disk) write(file string, data []byte) error {
	fails := d.writes >= d.first && d.writes < d.first+d.count
	dies := d.dies && d.writes == d.first
	d.writes++
	if fails && d.torn {
		_ = os.WriteFile(file+".tmp", data[:len(data)/2], 0o600)
	}
	if !fails || d.replaced {
		draft := file + ".draft"
		if err := os.WriteFile(draft, data, 0o600); err != nil {
			return err
		}
		if err := os.Rename(draft, file); err != nil {
			return err
		}
	}
	if dies {
		panic(killed{})
	}
	if fails {
		return d.err
	}
	return nil
}

// outcome is the result of a request from the client's point of view.
type outcome string

const (
	accepted outcome = "accepted"
	rejected outcome = "rejected" // error response; the request must have no effect
	cut      outcome = "no response"
)

// life simulates the life of jobs on a faulty disk.
type life struct {
	*twoWorlds
	disk *disk
}

// survive runs a step, and starts a new process if the old one crashes.
func (l *life) survive(step func()) {
	defer func() {
		switch died := recover(); died {
		case nil:
		case killed{}:
			l.restart()
		default:
			panic(died)
		}
	}()
	step()
}

// request sends a request to the API of objects.
func (l *life) request(method, path, media, body string) (got outcome) {
	got = cut
	l.survive(func() {
		defer func() {
			if died := recover(); died != nil && died != http.ErrAbortHandler {
				panic(died)
			}
		}()
		r := httptest.NewRequestWithContext(l.t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer ")
		r.Header.Set("Content-Type", media)
		w := httptest.NewRecorder()
		l.store.ServeHTTP(w, r)
		if got = rejected; w.Code < http.StatusBadRequest {
			got = accepted
		}
	})
	return got
}

func (l *life) sees(times int) {
	for range times {
		l.survive(l.twoWorlds.sees)
	}
}

const (
	jobsPath = "/apis/batch/v1/namespaces/physics/jobs"
	merge    = "application/merge-patch+json"
	zoneText = `apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: de}
spec: {zone: DE, default: true, carbon: {sources: [{typical: {}}]}}
`
)

func (l *life) post(name string) outcome {
	return l.request(http.MethodPost, jobsPath, "application/json", fmt.Sprintf(`{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": %q,
			"labels": {"app.kubernetes.io/created-by": "kubenergy-ingest"},
			"annotations": {"kubenergy.io/strategy": "energy", "kubenergy.io/expected-duration": "1h",
				"kubenergy.io/backend": "any"}},
		"spec": {"template": {"spec": {"containers": [{"name": "job", "image": "busybox:1.37",
			"command": ["sleep", "60"], "resources": {"requests": {"cpu": "1"}}}]}}}}`, name))
}

// starts returns the number of past and current runs of a job.
func (l *life) starts(name string) (runs int) {
	jobs, err := l.cluster.BatchV1().Jobs("physics").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, j := range jobs.Items {
		if j.Name == name {
			runs++
		}
	}
	for _, job := range l.ctld.ran {
		if l.names[job] == name {
			runs++
		}
	}
	return runs
}

// TestFailingWritesRunJobsOnce applies each fault to each write of objects.json during the life of three jobs: one
// that is moved between the backends, one that is deleted immediately, and one with run-now.
//
//test:norace
func TestFailingWritesRunJobsOnce(t *testing.T) {
	for _, backend := range []string{"slurm", "kubernetes"} {
		for _, f := range faults {
			writes := 1
			for n := 0; n < writes; n++ {
				d := &disk{fault: f, first: n}
				t.Run(fmt.Sprintf("%s/%s/%d", backend, f.name, n), func(t *testing.T) { liveOn(t, backend, d) })
				writes = d.writes
			}
		}
	}
}

// liveOn runs the jobs on a faulty disk, starting in the given backend.
func liveOn(t *testing.T, backend string, d *disk) {
	l := &life{newWorlds(t), d}
	kit.Write(t, filepath.Join(l.config, "zone.yaml"), zoneText)
	l.write = d.write
	l.restart()
	cheap, dear := 0.1, 10.0
	if backend == "slurm" {
		cheap, dear = dear, cheap
	}
	l.price(cheap)
	moved := l.post("moved")
	deleted, gone := l.post("deleted"), l.request(http.MethodDelete, jobsPath+"/deleted", "", "")
	l.sees(4)
	now := l.post("now")
	l.request(http.MethodPatch, "/apis/kubenergy.io/v1alpha1/gridzones/de/status", merge, `{"status":{"nodes":7}}`)
	l.sees(2)
	l.request(http.MethodPatch, jobsPath+"/now", merge, `{"metadata":{"annotations":{"kubenergy.io/run-now":"true"}}}`)
	l.price(dear)
	l.sees(6)
	l.price(cheap)
	l.sees(4)
	l.locked(l.ctld.start)
	l.sees(2)
	d.count = 0 // an operator frees the disk
	l.sees(8)
	l.locked(l.ctld.start)
	l.sees(1)
	l.locked(func() {
		for _, j := range l.ctld.jobs {
			if j.State == "RUNNING" {
				j.State = "COMPLETED"
			}
		}
	})
	l.sees(2)
	l.price(dear)
	l.restart()
	l.sees(6)
	l.locked(l.ctld.start)
	for _, c := range []struct {
		name    string
		posted  outcome
		deleted outcome
	}{{"moved", moved, rejected}, {"deleted", deleted, gone}, {"now", now, rejected}} {
		runs, least, most := l.starts(c.name), 0, 1
		switch {
		case c.posted == rejected, c.deleted == accepted:
			most = 0
		case c.posted == accepted && c.deleted == rejected:
			least = 1
		}
		if runs < least || runs > most {
			t.Errorf("job %s ran %d times: POST %s, DELETE %s, runs in Slurm: %q", c.name, runs, c.posted, c.deleted,
				l.ctld.ran)
		}
	}
	if err := l.store.Writable(); err != nil {
		t.Error(err)
	}
}
