package release

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/kube"
)

const inAPage = 40

// bindingServer is a fake API server with suspended bindings and a response latency.
type bindingServer struct {
	mu      sync.Mutex
	all     []map[string]any
	jobs    map[string]*batchv1.Job // held Jobs
	asked   map[string]bool         // requested Jobs
	freed   map[string]bool
	at, top int // current and maximum number of concurrent requests for single objects
}

// RoundTrip implements http.RoundTripper without a network, so that the latency uses the clock of the bubble.
func (s *bindingServer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, r)
	return answer.Result(), nil
}

func (s *bindingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, path, one := strings.Cut(r.URL.Path, "/namespaces/n/")
	if !one {
		from := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &from)
		to, meta := len(s.all), map[string]any{}
		if r.URL.Query().Get("limit") != "" && from+inAPage < to {
			to = from + inAPage
			meta["continue"] = strconv.Itoa(to)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBindingList", "metadata": meta,
			"items": s.all[from:to],
		})
		return
	}
	s.at++
	s.top = max(s.top, s.at)
	s.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	s.mu.Lock()
	s.at--
	_, name, _ := strings.Cut(path, "/")
	if r.Method == http.MethodPatch {
		s.freed[name] = true
		_, _ = w.Write([]byte(`{"apiVersion":"work.karmada.io/v1alpha2","kind":"ResourceBinding"}`))
		return
	}
	s.asked[name] = true
	if j := s.jobs[name]; j != nil {
		_ = json.NewEncoder(w).Encode(j)
		return
	}
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(apierrors.NewNotFound(schema.GroupResource{}, name).ErrStatus)
}

// TestManyBindings verifies that the bindings of Jobs that are not held are released concurrently, with paginated
// lists, and that no request is sent for Jobs that are known to be held.
func TestManyBindings(t *testing.T) {
	s := &bindingServer{jobs: map[string]*batchv1.Job{}, asked: map[string]bool{}, freed: map[string]bool{}}
	held := NewHeld()
	for i := range 120 {
		name := fmt.Sprint("job-", i)
		s.all = append(s.all, map[string]any{
			"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
			"metadata": map[string]any{
				// The clock of the bubble starts at midnight on the next day.
				"namespace": "n", "name": name + "-job", "creationTimestamp": "1999-12-31T12:00:00Z",
			},
			"spec": map[string]any{
				"suspension": map[string]any{"scheduling": true},
				"resource":   map[string]any{"namespace": "n", "name": name, "uid": name},
			},
		})
		j := kit.HeldUntil("n", name, time.Now(), time.Now().Add(time.Hour))
		j.UID, j.APIVersion, j.Kind = types.UID(name), "batch/v1", "Job"
		switch i % 4 {
		case 0: // the Job does not exist
			continue
		case 1: // held, but not in the index
		case 2: // resumed by a user, with the held label remaining
			j.Spec.Suspend = new(false)
			held.Saw(j)
		default:
			held.Saw(j)
		}
		s.jobs[name] = j
	}
	client, err := dynamic.NewForConfig(&rest.Config{Transport: s, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if err := freeBindings(t.Context(), client, held, kit.Silent); err != nil {
			t.Fatal(err)
		}
	})
	for i := range 120 {
		name := fmt.Sprint("job-", i)
		if freed, want := s.freed[name+"-job"], i%2 == 0; freed != want {
			t.Errorf("%s: released is %v, want %v", name, freed, want)
		}
		if asked, want := s.asked[name], i%4 != 3; asked != want {
			t.Errorf("%s: requested is %v, want %v", name, asked, want)
		}
	}
	if s.top < 2 || s.top > releasesAtOnce {
		t.Errorf("got %d concurrent requests, want 2 to %d", s.top, releasesAtOnce)
	}
}

// TestForbiddenIsToldOnce verifies that a missing permission is logged once by Karmada's API server, and not by others,
// which also return Forbidden.
func TestForbiddenIsToldOnce(t *testing.T) {
	for _, karmada := range []bool{true, false} {
		t.Run(fmt.Sprint(karmada), func(t *testing.T) { forbidden(t, karmada) })
	}
}

func forbidden(t *testing.T, karmada bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{kube.Bindings: "ResourceBindingList"})
		looks := 0
		client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			looks++
			return true, nil, apierrors.NewForbidden(kube.Bindings.GroupResource(), "", nil)
		})
		var log bytes.Buffer
		ctx, stop := context.WithTimeout(t.Context(), 11*time.Minute)
		defer stop()
		served := func() bool { return karmada }
		if err := Bindings(ctx, client, served, NewHeld(), slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(log.String(), "deploy/karmada/federation.yaml")
		if looks != 3 || (lines == 1) != karmada || (log.Len() > 0) != karmada {
			t.Errorf("got %d checks and %d log messages:\n%s", looks, lines, &log)
		}
	})
}
