package standalone_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/internal/kube/standalone"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// store is a server with a state file that can be made to fail on writes.
type store struct {
	t      *testing.T
	state  string
	err    error // returned by each write
	lands  bool  // failed writes take effect nevertheless
	server *standalone.Server
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{t: t, state: filepath.Join(t.TempDir(), "objects.json")}
	s.restart()
	return s
}

func (s *store) restart() {
	s.t.Helper()
	var err error
	s.server, err = standalone.New(standalone.Options{
		Folder: s.t.TempDir(), State: s.state, Log: slog.New(slog.DiscardHandler),
		Write: func(file string, data []byte) error {
			if s.err != nil && !s.lands {
				return s.err
			}
			if err := os.WriteFile(file, data, 0o600); err != nil {
				return err
			}
			return s.err
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// request returns the status code of the response, or 0 if the connection was aborted.
func (s *store) request(method, path, media, body string) (status int, answer string) {
	s.t.Helper()
	return s.in(s.t.Context(), method, path, media, body)
}

func (s *store) in(ctx context.Context, method, path, media, body string) (status int, answer string) {
	s.t.Helper()
	defer func() {
		if died := recover(); died != nil && died != http.ErrAbortHandler {
			panic(died)
		}
	}()
	r := httptest.NewRequestWithContext(ctx, method, "/apis/batch/v1/namespaces/physics/jobs"+path,
		strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer ")
	r.Header.Set("Content-Type", media)
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// list returns the resource version of a list of all Jobs, and the annotation x of each Job.
func (s *store) list() (version string, jobs map[string]string) {
	s.t.Helper()
	_, text := s.request(http.MethodGet, "", "", "")
	var all batchv1.JobList
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		s.t.Fatal(err)
	}
	jobs = map[string]string{}
	for _, j := range all.Items {
		jobs[j.Name] = j.Annotations["x"]
	}
	return all.ResourceVersion, jobs
}

const aJob = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":%q,"annotations":{"x":%q}}}`

var changes = []struct{ name, method, path, media, body string }{
	{"create", http.MethodPost, "", "application/json", fmt.Sprintf(aJob, "new", "1")},
	{"update", http.MethodPut, "/old", "application/json", fmt.Sprintf(aJob, "old", "2")},
	{"patch", http.MethodPatch, "/old", "application/merge-patch+json", `{"metadata":{"annotations":{"x":"2"}}}`},
	{"delete", http.MethodDelete, "/old", "", ""},
}

// TestFailedWritesChangeNothing verifies that a change with a failed write is not visible in any response, list or
// watch, nor after a restart, and that its version is not reused.
func TestFailedWritesChangeNothing(t *testing.T) {
	for _, c := range changes {
		for _, uncertain := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, uncertain), func(t *testing.T) {
				s := newStore(t)
				s.request(http.MethodPost, "", "application/json", fmt.Sprintf(aJob, "old", "1"))
				since, want := s.list()
				if s.err = syscall.ENOSPC; uncertain {
					s.err, s.lands = fmt.Errorf("%w: %w", standalone.ErrUncertain, syscall.EIO), true
				}
				status, answer := s.request(c.method, c.path, c.media, c.body)
				if wanted := map[bool]int{false: http.StatusInternalServerError, true: 0}[uncertain]; status != wanted {
					t.Errorf("status %d, want %d: %s", status, wanted, answer)
				}
				if version, got := s.list(); version != since || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("published: %v at %s, want %v at %s", got, version, want, since)
				}
				ended, end := context.WithCancel(t.Context())
				end()
				if _, events := s.in(ended, http.MethodGet, "?watch=true&resourceVersion="+since, "", ""); events != "" {
					t.Errorf("the watches received %s", events)
				}
				if err := s.server.Writable(); (err != nil) != uncertain {
					t.Errorf("uncertain = %v, Writable() = %v", uncertain, err)
				}
				s.err = nil
				if err := s.server.Writable(); err != nil {
					t.Error(err)
				}
				version, _ := s.list()
				s.restart()
				if _, got := s.list(); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("after a restart: %v, want %v", got, want)
				}
				if status, answer = s.request(c.method, c.path, c.media, c.body); status >= http.StatusBadRequest {
					t.Fatalf("status %d: %s", status, answer)
				}
				if later, _ := s.list(); later <= version {
					t.Errorf("version %s follows version %s", later, version)
				}
			})
		}
	}
}

// TestUncertainWritesAreUndone verifies that an uncertain write is reverted immediately if possible, and is then
// reported like any other error.
func TestUncertainWritesAreUndone(t *testing.T) {
	s := newStore(t)
	writes := 0
	var err error
	s.server, err = standalone.New(standalone.Options{
		Folder: t.TempDir(), State: s.state, Log: slog.New(slog.DiscardHandler),
		Write: func(file string, data []byte) error {
			if writes++; writes == 1 {
				return fmt.Errorf("%w: %w", standalone.ErrUncertain, os.WriteFile(file, data, 0o600))
			}
			return os.WriteFile(file, data, 0o600)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := s.request(http.MethodPost, "", "application/json", fmt.Sprintf(aJob, "new", "1")); status !=
		http.StatusInternalServerError || writes != 2 {
		t.Errorf("status %d after %d writes: %s", status, writes, answer)
	}
	s.restart()
	if _, got := s.list(); len(got) > 0 {
		t.Errorf("a Job exists after its creation failed and after a restart: %v", got)
	}
}

// TestTornStateIsKept verifies that an unreadable state file is not modified. Until an operator intervenes, Jobs
// are rejected and all other requests are served.
func TestTornStateIsKept(t *testing.T) {
	for _, torn := range []string{"", "[{", `[{"apiVersion":"batch/v1","kind":"Job"}]`, `{"a":1}`, "\x00\x00\x00"} {
		s := newStore(t)
		if err := os.WriteFile(s.state, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		s.restart()
		status, answer := s.request(http.MethodPost, "", "application/json", fmt.Sprintf(aJob, "new", "1"))
		if status != http.StatusInternalServerError || !strings.Contains(answer, "moved away") {
			t.Errorf("%q: creating a Job returns %d: %s", torn, status, answer)
		}
		if err := s.server.Writable(); err == nil || !strings.Contains(err.Error(), s.state) {
			t.Errorf("%q: %v", torn, err)
		}
		if _, got := s.list(); len(got) > 0 {
			t.Errorf("%q: %v", torn, got)
		}
		if text, err := os.ReadFile(s.state); string(text) != torn || err != nil {
			t.Errorf("%q became %q, %v", torn, text, err)
		}
	}
}

// TestSlowQuantitiesAreRefused verifies that quantities are rejected that the program or its clients would parse
// for years.
func TestSlowQuantitiesAreRefused(t *testing.T) {
	s := newStore(t)
	for _, quantity := range []string{"1e-999999999", `1\u0065-999999999`} {
		status, answer := s.request(http.MethodPost, "", "application/json", `{"metadata":{"name":"slow"},"spec":{"template":{
			"spec":{"containers":[{"resources":{"requests":{"cpu":"`+quantity+`"}}}]}}}}`)
		if status != http.StatusBadRequest {
			t.Errorf("%s returns %d: %s", quantity, status, answer)
		}
	}
}

// FuzzState starts a server with arbitrary state and writes the state again.
func FuzzState(f *testing.F) {
	f.Add([]byte(`[{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a","namespace":"physics","resourceVersion":"7"}}]`))
	f.Add([]byte(`[{"apiVersion":"kubenergy.io/v1alpha1","kind":"GridZone","metadata":{"name":"de"},"status":{"nodes":1e99}}]`))
	f.Add([]byte(`[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":[],"creationTimestamp":{}}}]`))
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, state []byte) {
		defer memtest.Limit(t, 1000*len(state))()
		file := filepath.Join(t.TempDir(), "objects.json")
		if err := os.WriteFile(file, state, 0o600); err != nil {
			t.Fatal(err)
		}
		written := slices.Clone(state)
		o := standalone.Options{
			Folder: folder, State: file, Log: slog.New(slog.DiscardHandler),
			Write: func(_ string, data []byte) error {
				written = data
				return nil
			},
		}
		done := memtest.Limit(t, 1000*len(state))
		s, err := standalone.New(o)
		done()
		if err != nil {
			t.Fatal(err)
		}
		kind := batchv1.SchemeGroupVersion.WithKind("Job")
		for _, o := range s.All(kind) {
			if err := s.Put(kind, o.DeepCopy()); err != nil && s.Writable() == nil {
				t.Logf("storing again: %v", err)
			}
		}
		o2 := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}
		o2.SetName("fuzz")
		if err := s.Put(kind, o2); (err == nil) != (s.Writable() == nil) {
			t.Errorf("Put: %v, Writable: %v", err, s.Writable())
		}
		if s.Writable() != nil {
			return
		}
		if err := os.WriteFile(file, written, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := standalone.New(o)
		if err != nil || again.Writable() != nil || len(again.All(kind)) != len(s.All(kind)) {
			t.Errorf("the written state cannot be read: %v, %v", err, again.Writable())
		}
	})
}
