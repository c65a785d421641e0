package signal

import (
	"context"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/dial/dialtest"
)

// TestForgedRequests verifies that no spelling of a URL leads to a metadata service or to the local machine, even
// if private addresses are allowed. The connection must be rejected before a request is sent.
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
		t.Fatalf("got only %d payloads", len(payloads))
	}
	for _, p := range payloads {
		t.Run(p.Name, func(t *testing.T) {
			f := newFetcher(Reach{resolver: names.Resolver()}, true)
			f.pause = nil // a retry would panic
			if p.Numeric {
				f.pause = testFetcher(t, inside, nil).pause
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
		t.Errorf("%d requests reached an internal address", arrived.Load())
	}
}

// TestReboundName verifies that the address that is checked is also the address that is dialed, so that DNS
// rebinding is detected.
func TestReboundName(t *testing.T) {
	p := newProvider(t, description("{}"))
	u, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := newFetcher(Reach{
		resolver: dialtest.Names{"good.example": {"127.0.0.1", "169.254.169.254"}}.Resolver(), Loopback: true,
	}, false)
	f.pause = testFetcher(t, p.Server, nil).pause
	target := "http://good.example:" + u.Port() + "/"
	if _, _, err := f.get(t.Context(), request{url: target}); err != nil {
		t.Fatal(err)
	}
	f.HTTP.CloseIdleConnections()
	if _, _, err := f.get(t.Context(), request{url: target}); dial.ReasonOf(err) != dial.ReasonAddress {
		t.Errorf("got %v", err)
	}
}

// TestKeysGoOnlyWhereTheirSecretSays verifies that a key is only sent to the hosts that its Secret lists, or to its
// provider if there is no list. Authors of GridZones can choose both key names and URLs.
func TestKeysGoOnlyWhereTheirSecretSays(t *testing.T) {
	arrived := make(map[string]string) // keys by host
	ask := func(keys folderOfKeys, kind, url string) error {
		f := (&builder{deps: Deps{Keys: keys, Calls: new(endless), Clock: time.Now, Metrics: NewMetrics(time.Now)}}).
			fetcher(kind, "account", 100, false)
		f.plain = true // like allowPrivateAddress
		f.HTTP.Transport = wire(func(r *http.Request) (*http.Response, error) {
			arrived[r.URL.Host] = r.Header.Get("Auth-Token")
			return respond(200, "{}")
		})
		_, _, err := f.get(t.Context(), request{url: url, key: "em", keyHeader: "Auth-Token"})
		return err
	}
	for _, c := range []struct {
		name  string
		hosts string // empty if the Secret has no list of hosts
		kind  string
		url   string
		sent  bool
	}{
		{"to its provider", "", "electricityMaps", electricityMapsURL, true},
		{"to another host for the provider's source", "", "electricityMaps", "https://evil.example", false},
		{"to another port", "", "electricityMaps", electricityMapsURL + ":8443", false},
		{"to any URL", "", "http", "https://evil.example", false},
		{"to another provider", "", "http", electricityMapsURL, false},
		{"to a host in the Secret", "em.example\nproxy.example:8443\n", "http", "https://PROXY.example:8443", true},
		{"to another port of a host in the Secret", "em.example", "prometheus", "https://em.example:9090", false},
		{"to a host that is not in the Secret", "em.example", "electricityMaps", electricityMapsURL, false},
		{"in clear", "em.example", "http", "http://em.example", false},
		{"unencrypted to a host in the Secret", "em.example:80", "http", "http://em.example", true},
		{"nowhere", "\n", "electricityMaps", electricityMapsURL, false},
	} {
		clear(arrived)
		keys := folderOfKeys{"em": "sesame"}
		if c.hosts != "" {
			keys["em.hosts"] = c.hosts
		}
		err := ask(keys, c.kind, c.url)
		if c.sent && (err != nil || len(arrived) != 1) || !c.sent && (dial.ReasonOf(err) != dial.ReasonAuth ||
			len(arrived) > 0 || !strings.Contains(err.Error(), "em.hosts") || strings.Contains(err.Error(), "sesame")) {
			t.Errorf("%s: received keys %v, error %v", c.name, arrived, err)
		}
	}
	// These sources do not send the key in a header.
	for name, fetch := range map[string]func(*fetcher) error{
		"wattTime": func(f *fetcher) error {
			_, err := (&wattTime{spec: &v1alpha1.WattTimeSource{URL: "https://evil.example", Key: "em"}, fetch: f}).
				Fetch(t.Context(), noon)
			return err
		},
		"entsoe": func(f *fetcher) error {
			_, err := (&entsoe{&v1alpha1.ENTSOESource{URL: "https://evil.example", Key: "em"}, f}).Fetch(t.Context(), noon)
			return err
		},
	} {
		f := newFetcher(Reach{}, false)
		f.keys = folderOfKeys{"em": "ali:baba"}
		f.HTTP.Transport = wire(func(*http.Request) (*http.Response, error) {
			t.Errorf("%s sent a key to an arbitrary URL", name)
			return respond(500, "")
		})
		if err := fetch(f); dial.ReasonOf(err) != dial.ReasonAuth {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type folderOfKeys map[string]string

func (k folderOfKeys) Key(name string) (string, error) {
	if key, ok := k[name]; ok {
		return key, nil
	}
	return "", fs.ErrNotExist
}

// TestPlainHTTPStaysInside verifies that allowPrivateAddress allows plain HTTP to private addresses only. On the
// internet, others could read keys and forge signals.
func TestPlainHTTPStaysInside(t *testing.T) {
	names := dialtest.Names{"public.example": {"8.8.8.8"}, "inside.example": {"10.0.0.7"}}
	for host, refused := range map[string]bool{"public.example": true, "inside.example": false, "8.8.8.8": true} {
		f := newFetcher(Reach{resolver: names.Resolver()}, true)
		timeout := time.Minute
		if !refused {
			timeout = 50 * time.Millisecond // no server responds
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		f.pause = func(context.Context, time.Duration) bool { return false }
		_, _, err := f.get(ctx, request{url: "http://" + host + ":9/"})
		if (dial.ReasonOf(err) == dial.ReasonAddress && strings.Contains(err.Error(), "use https")) != refused {
			t.Errorf("%s: %v", host, err)
		}
	}
}
