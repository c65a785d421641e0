package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// browser returns a function that requests a page of source in memory.
func browser(t testing.TB, source dashboard.Source, clock func() time.Time) func(path string) *httptest.ResponseRecorder {
	t.Helper()
	page := dashboard.NewServer(source, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}, clock)
	first, err := url.Parse(page.Address())
	if err != nil {
		t.Fatal(err)
	}
	h := page.Handler()
	ask := func(path string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = first.Host
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	cookies := ask("/?" + first.RawQuery).Result().Cookies()
	return func(path string) *httptest.ResponseRecorder { return ask(path, cookies...) }
}

// faulty is a source that creates models with make.
type faulty struct {
	make  func() (*dashboard.Model, error)
	moves bool
}

func (f *faulty) Model(context.Context, dashboard.Query) (*dashboard.Model, error) { return f.make() }
func (f *faulty) Job(context.Context, dashboard.Query, string, string, string) (*dashboard.JobView, error) {
	return nil, nil
}

func (f *faulty) Decision(context.Context, dashboard.Query, *ledger.Record) (*ledger.Record, error) {
	return nil, nil
}

func (f *faulty) Origin(context.Context, dashboard.Query, string, string) (*dashboard.Origin, error) {
	return nil, nil
}
func (f *faulty) Live() bool { return f.moves }

// TestFailuresAreTriedAgain checks that a panic or an error during the creation of a model only fails the requests
// that waited for it, for a cluster and for a directory.
func TestFailuresAreTriedAgain(t *testing.T) {
	good := &dashboard.Model{Now: now, From: now.Add(-time.Hour), To: now}
	for name, c := range map[string]struct {
		fail func() (*dashboard.Model, error)
		code int
	}{
		"panic": {func() (*dashboard.Model, error) { panic("planted") }, http.StatusInternalServerError},
		"error": {func() (*dashboard.Model, error) { return nil, errors.New("planted") }, http.StatusBadGateway},
	} {
		for _, live := range []bool{false, true} {
			fails := true
			get := browser(t, &faulty{moves: live, make: func() (*dashboard.Model, error) {
				if fails {
					return c.fail()
				}
				return good, nil
			}}, func() time.Time { return now })
			for range 2 {
				if w := get("/"); w.Code != c.code {
					t.Errorf("%s, live %v: unexpected response %d %s", name, live, w.Code, w.Body)
				}
			}
			fails = false
			if w := get("/"); w.Code != http.StatusOK {
				t.Errorf("after the %s, live %v: unexpected response %d %s", name, live, w.Code, w.Body)
			}
		}
	}
}

// TestWaitersOfAPanic checks that requests that wait for a model receive a response if its creation panics.
func TestWaitersOfAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		get := browser(t, &faulty{make: func() (*dashboard.Model, error) {
			<-release
			panic("planted")
		}}, time.Now)
		var asked sync.WaitGroup
		for range 3 {
			asked.Go(func() {
				if w := get("/"); w.Code != http.StatusInternalServerError {
					t.Errorf("unexpected response %d %s", w.Code, w.Body)
				}
			})
		}
		synctest.Wait()
		close(release)
		asked.Wait()
	})
}

var pages = []string{
	"/", "/decisions", "/savings", "/compare", "/how", "/csv?of=work", "/csv?of=decisions", "/svg?of=grid",
	"/svg?of=work", "/svg?of=power", "/model.json", "/job?kind=job&namespace=x&name=y", "/origin?namespace=x",
	"/decision?id=x&at=2026-01-01T00:00:00Z", "/?from=0001-01-01", "/?from=1970-01-01&to=9999-12-31",
}

// hostile returns a results file for a time range with two values of every drawn quantity.
func hostile(from, to, v1, v2 string) string {
	const script = `\"><script>alert(1)</script><img src=x onerror=alert(1)>`
	return fmt.Sprintf(`{"apiVersion":"kubenergy.io/v1alpha1","kind":"DashboardResults","models":[{
"apiVersion":"kubenergy.io/v1alpha1","kind":"Dashboard","title":"%[1]s","note":"%[1]s","now":"%[2]s","from":"%[2]s",
"to":"%[3]s","past":true,"runs":["%[1]s"],"run":0,"zones":[{"name":"%[1]s","carbon":{"unit":"%[1]s","source":"%[1]s",
"quality":"measured","points":[{"at":"%[2]s","value":%[4]s},{"at":"%[3]s","value":%[5]s}],"until":"%[3]s"}}],
"power":{"points":[{"at":"%[2]s","dynamic":%[4]s,"idle":%[4]s,"asleep":%[5]s}],"until":"%[3]s","estimatedShare":1,
"quality":"estimated","where":"%[1]s","nodes":1},
"jobs":[{"kind":"job","name":"y","namespace":"x","team":"%[1]s","since":"%[2]s","why":"%[1]s",
"plannedStart":"%[3]s","latestStart":"%[3]s","finished":"%[3]s"}],"namespaces":[],"budgets":[],
"decisions":[{"id":"x","at":"%[2]s","action":"hold","namespace":"%[1]s","owner":"%[1]s","ownerKind":"%[1]s",
"reason":"%[1]s","message":"%[1]s","strategy":"%[1]s"}]}]}`, script, from, to, v1, v2)
}

func opened(t testing.TB, file, text string) (*dashboard.Folder, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dashboard.OpenFolder(dir)
}

// render requests every page and fails if one returns an error or contains unescaped text.
func render(t testing.TB, f *dashboard.Folder) {
	t.Helper()
	get := browser(t, f, func() time.Time { return now })
	for _, path := range pages {
		w := get(path)
		kind := w.Header().Get("Content-Type")
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%s: unexpected response %d %s", path, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), "<script>alert") && !strings.Contains(kind, "json") &&
			!strings.Contains(kind, "csv") {
			t.Errorf("%s: unescaped text", path)
		}
	}
}

// TestHostileFolder checks that untrusted results are rejected or shown, and that no page panics or hangs.
//
//test:norace
func TestHostileFolder(t *testing.T) {
	const from, to = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
	for name, c := range map[string]struct {
		text    string
		refused string
	}{
		"plain":       {hostile(from, to, "1", "2"), ""},
		"same":        {hostile(from, from, "1", "2"), ""},
		"tiny values": {hostile(from, to, "5e-324", "0"), ""},
		"large":       {hostile(from, to, "1e18", "-1e18"), ""},
		"equal":       {hostile(from, to, "1e17", "1e17"), ""},
		"long":        {hostile("2006-01-02T00:00:00Z", to, "1", "2"), ""},
		"too long":    {hostile("1996-01-01T00:00:00Z", to, "1", "2"), "at most 20 years"},
		"millennia":   {hostile("0001-01-01T00:00:01Z", "9999-12-31T00:00:00Z", "1", "2"), "before 1900"},
		"zero time":   {hostile("0001-01-01T00:00:00Z", to, "1", "2"), "at most 20 years"},
		"backwards":   {hostile(to, from, "1", "2"), "at most 20 years"},
		"huge values": {hostile(from, to, "1.7e308", "-1.7e308"), "beyond 1e+18"},
		"many jobs":   {`{"models":[{"jobs":[` + strings.Repeat("{},", 5000) + `{}]}]}`, "too many"},
		"many models": {`{"models":[` + strings.Repeat("null,", 5000) + `null]}`, "too many"},
		"brackets":    {`{"models":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "cannot unmarshal"},
		"runs":        {`{"models":[{"runs":[]},{"runs":["a","b"],"run":1}]}`, "lists 0 of 2 runs"},
		"negative run": {`{"models":[{"runs":["a","b"],"jobs":[{"name":"y"}]},{"runs":["a","b"],"run":-1,` +
			`"jobs":[{"name":"y"}]}]}`, "run -1 lists"},
	} {
		f, err := opened(t, dashboard.FileName, c.text)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: got error %v, want %s", name, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Run(name, func(t *testing.T) { render(t, f) })
	}
	if _, err := opened(t, "comparison.json", `{"strategies":[`+strings.Repeat("{},", 5000)+`{}]}`); err == nil ||
		!strings.Contains(err.Error(), "too many") {
		t.Errorf("unexpected error for a comparison: %v", err)
	}
}

// FuzzFolder opens untrusted results and shows them. It must not panic, and the allocated memory must be limited by
// the size of the file.
func FuzzFolder(f *testing.F) {
	f.Add(hostile("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "1", "2"), false)
	f.Add(`{"models":[`+strings.Repeat("{},", 900)+`{}]}`, false)
	f.Add(`{"models":[{"jobs":[`+strings.Repeat("null,", 900)+`{}]}]}`, false)
	f.Add(`{"name":"x","baseline":"a","strategies":[{"strategy":"a","trials":1},{"strategy":"b","grams":1e17}]}`, true)
	f.Fuzz(func(t *testing.T, text string, comparison bool) {
		done := memtest.Limit(t, 4<<20+100*len(text))
		folder, err := opened(t, map[bool]string{true: "comparison.json", false: dashboard.FileName}[comparison], text)
		done()
		if err == nil {
			render(t, folder)
		}
	})
}
