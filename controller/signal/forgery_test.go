package signal

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/controller/dial"
	"github.com/kubenergy/kubenergy/controller/dial/dialtest"
)

// However a URL is written, a source leads neither to metadata services nor to this machine, also where private
// addresses are allowed: it is refused when it would be dialled, and nothing arrives.
func TestForgedRequests(t *testing.T) {
	var arrived atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer inside.Close()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(inside.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	payloads, names := dialtest.Payloads(port)
	if len(payloads) < 30 {
		t.Fatalf("%d payloads only", len(payloads))
	}
	for _, p := range payloads {
		t.Run(p.Name, func(t *testing.T) {
			f := newFetcher(Reach{resolver: names.Resolver()}, true)
			f.sleep = nil // it is not tried again
			if p.Numeric {
				f.sleep = testFetcher(t, inside, nil).sleep
			}
			s, err := newHTTP("DE", &v1alpha1.HTTPSource{URL: p.URL, Value: "v", AllowPrivateAddress: true}, carbon, f)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Fetch(t.Context(), time.Now())
			if err == nil || !p.Numeric && dial.ReasonOf(err) != dial.ReasonAddress {
				t.Errorf("%s: %v", p.URL, err)
			}
		})
	}
	if arrived.Load() != 0 {
		t.Errorf("%d requests arrived inside", arrived.Load())
	}
}

// A name that is rebound between two requests is refused at the second: what is checked is what is dialled.
func TestReboundName(t *testing.T) {
	p := newProvider(t, says("{}"))
	u, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := newFetcher(Reach{
		resolver: dialtest.Names{"good.example": {"127.0.0.1", "169.254.169.254"}}.Resolver(), Loopback: true,
	}, false)
	f.sleep = testFetcher(t, p.Server, nil).sleep
	target := "http://good.example:" + u.Port() + "/"
	if _, _, err := f.get(t.Context(), request{url: target}); err != nil {
		t.Fatal(err)
	}
	f.HTTP.CloseIdleConnections()
	if _, _, err := f.get(t.Context(), request{url: target}); dial.ReasonOf(err) != dial.ReasonAddress {
		t.Errorf("got %v", err)
	}
}
