package signal

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// noon is the current time in most tests.
var noon = time.Date(2026, 3, 10, 12, 20, 0, 0, time.UTC)

// testKeys contains keys by name. They may be sent to the servers in testFakes.
type testKeys map[string]string

// testFakes contains the hosts of all fake providers.
var testFakes sync.Map

func (k testKeys) Key(name string) (string, error) {
	key, ok := k[name]
	if strings.HasSuffix(name, ".hosts") {
		hosts := "provider.example x.example 169.254.169.254:80 [::ffff:169.254.169.254]:80 [::ffff:10.0.0.7] 127.0.0.1:1"
		testFakes.Range(func(host, _ any) bool {
			hosts += " " + host.(string)
			return true
		})
		return hosts, nil
	}
	if !ok {
		return "", fs.ErrNotExist
	}
	return key, nil
}

// testReach allows connections to fake providers on loopback.
func testReach(servers ...*httptest.Server) Reach {
	reach := Reach{Loopback: true}
	for _, s := range servers {
		testFakes.Store(s.Listener.Addr().String(), true)
		if s.Certificate() != nil {
			if reach.Roots == nil {
				reach.Roots = x509.NewCertPool()
			}
			reach.Roots.AddCert(s.Certificate())
		}
	}
	return reach
}

// testFetcher returns a fetcher for a fake provider with the given keys and without delays between attempts.
func testFetcher(t testing.TB, server *httptest.Server, keys map[string]string) *fetcher {
	t.Helper()
	f := newFetcher(testReach(server), false)
	f.keys = testKeys(keys)
	f.pause = func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil }
	return f
}

// provider is a fake provider of signals with a replaceable handler.
type provider struct {
	*httptest.Server
	requests atomic.Int64
	handler  atomic.Pointer[http.HandlerFunc]
}

func newProvider(t testing.TB, serve http.HandlerFunc) *provider {
	p := new(provider)
	p.serve(serve)
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		(*p.handler.Load())(w, r)
	}))
	p.Config.ErrorLog = nil
	p.Start()
	t.Cleanup(p.Close)
	testFakes.Store(p.Listener.Addr().String(), true)
	return p
}

func (p *provider) serve(h http.HandlerFunc) { p.handler.Store(&h) }

// description returns a handler that writes a formatted text.
func description(format string, args ...any) http.HandlerFunc {
	text := fmt.Sprintf(format, args...)
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// status returns a handler that writes a status code, with headers given as pairs of name and value.
func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// endless is a budget that grants and counts all requests.
type endless struct{ granted atomic.Int64 }

func (*endless) Block(context.Context, string, time.Time, time.Time) error { return nil }

func (b *endless) Reserve(context.Context, string, int, time.Time) (bool, time.Time, error) {
	b.granted.Add(1)
	return true, time.Time{}, nil
}

// quick disables the delays between attempts of the fetchers of a keeper.
func quick(reach Reach, clock func() time.Time) Reach {
	reach.tweak = func(f *fetcher) {
		f.pause = func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil }
		f.Now = clock
	}
	return reach
}

// testDeps returns dependencies for a keeper of a fake provider. The test controls the clock through now.
func testDeps(now *time.Time) Deps {
	clock := func() time.Time { return *now }
	return Deps{
		Keys: testKeys{"em": "sesame", "wt": "ali:baba"}, Calls: new(endless), Clock: clock, Metrics: NewMetrics(clock),
		Log:   slog.New(slog.DiscardHandler),
		Reach: quick(Reach{Loopback: true}, clock),
	}
}

func electricityMapsAt(url string) v1alpha1.CarbonSource {
	return v1alpha1.CarbonSource{ElectricityMaps: &v1alpha1.ElectricityMapsSource{URL: url, Key: "em"}}
}

func carbonKeeper(t testing.TB, d Deps, sources ...v1alpha1.CarbonSource) *Keeper {
	t.Helper()
	k, err := NewCarbonKeeper("DE", &v1alpha1.CarbonSpec{
		MaxAge: &metav1.Duration{Duration: 2 * time.Hour}, Sources: sources,
	}, d)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// latest returns a response of Electricity Maps with the value of an hour.
func latest(zone string, at time.Time, value string) string {
	return fmt.Sprintf(
		`{"zone":%q,"carbonIntensity":%s,"datetime":%q,"updatedAt":%q,"emissionFactorType":"lifecycle","isEstimated":false}`,
		zone, value, at.Format("2006-01-02T15:04:05.000Z"), noon.Format(time.RFC3339))
}

// atPath returns a handler that selects the response by the longest matching suffix of the path. Other paths get
// status 404.
func atPath(answers map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, longest := http.NotFound, -1
		for end, h := range answers {
			if strings.HasSuffix(r.URL.Path, end) && len(end) > longest {
				answer, longest = h, len(end)
			}
		}
		answer(w, r)
	}
}

// state is the state of a keeper at a point in time, with the signal that readers derive from it.
type state struct {
	v1alpha1.SignalStatus
	Signal    grid.Signal
	Fresh     bool
	LastError string
	Reason    dial.Reason
}

func (k *Keeper) state(now time.Time) (s state) {
	status, err := k.Look(now)
	if s.Fresh = status != nil; s.Fresh {
		s.SignalStatus = *status
		s.Signal, _ = kube.Signal(status, nil)
	}
	if err != nil {
		s.LastError, s.Reason = err.Error(), dial.ReasonOf(err)
	}
	return s
}

// data returns a recorded response of a provider. The recordings are not part of the repository.
func data(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", "..", "..", "shared", "data", "api", name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the recorded response %s is not available", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}
