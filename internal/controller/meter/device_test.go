package meter

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/dial/dialtest"
)

type testKeys map[string]string

func (k testKeys) Key(name string) (string, error) {
	key, ok := k[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return key, nil
}

// secret is the password of all devices.
const secret = "s3same/+=&"

var keys = testKeys{"plug": secret}

// open returns the meter of a configuration entry. Loopback addresses are permitted.
func open(t testing.TB, entry string) *meter {
	t.Helper()
	c, err := Parse([]byte("meters: [{node: w, " + entry + "}]"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(c, Deps{Keys: keys, Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	return p.meters[0]
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func description(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

const plug = `{"switch:0":{"apower":5,"aenergy":{"total":1.5}}}`

// TestDigest verifies that a nonce is reused with increasing counts, and that an expired nonce or one from before a
// reboot costs one additional request.
func TestDigest(t *testing.T) {
	g := &guard{t: t, password: secret, lasts: 3}
	m := open(t, "kind: shelly2, passwordKey: plug, url: '"+serve(t, g.protect(description(plug)))+"'")
	for range 10 {
		if _, err := m.source.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if g.accepted != 10 || g.issued != 4 || g.refused != 0 {
		t.Errorf("got %d accepted and %d rejected requests, %d challenges", g.accepted, g.refused, g.issued)
	}
	clear(g.nonces)
	if _, err := m.source.read(t.Context()); err != nil {
		t.Errorf("after a reboot: %v", err)
	}
	g.password = "another"
	for range 2 {
		if _, err := m.source.read(t.Context()); dial.ReasonOf(err) != dial.ReasonAuth || err == nil {
			t.Errorf("another password: %v", err)
		}
	}
	if g.refused > 3 {
		t.Errorf("an incorrect password was sent %d times in 2 polls", g.refused)
	}
}

// TestDigestByMD5 verifies that no credentials are sent to a device that supports only MD5.
func TestDigestByMD5(t *testing.T) {
	g := &guard{t: t, password: secret, lasts: 3, md5: true}
	m := open(t, "kind: shelly2, passwordKey: plug, url: '"+serve(t, g.protect(description(plug)))+"'")
	if _, err := m.source.read(t.Context()); dial.ReasonOf(err) != dial.ReasonAuth || err == nil || g.refused != 0 {
		t.Errorf("%v", err)
	}
}

func TestBasic(t *testing.T) {
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != secret || r.URL.Path != "/status" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		description(`{"meters":[{"power":5,"is_valid":true,"total":7}]}`)(w, r)
	})
	if s, err := open(t, "kind: shelly1, username: me, passwordKey: plug, url: '"+at+"'").source.read(
		t.Context()); err != nil || s[0].watts != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := open(t, "kind: shelly1, username: you, passwordKey: plug, url: '"+at+"'").source.read(
		t.Context()); dial.ReasonOf(err) != dial.ReasonAuth {
		t.Errorf("another user: %v", err)
	}
	if _, err := open(t, "kind: shelly1, passwordKey: absent, url: '"+at+"'").source.read(t.Context()); dial.ReasonOf(
		err) != dial.ReasonAuth || !strings.Contains(err.Error(), "absent") {
		t.Errorf("no key: %v", err)
	}
}

// TestTasmotaAsks verifies that the credentials are sent in the query and that the command for old versions is
// remembered.
func TestTasmotaAsks(t *testing.T) {
	var asked []string
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q, err := url.ParseQuery(strings.ReplaceAll(r.URL.RawQuery, "+", "%2B")) // a plus sign is not decoded
		if err != nil || q.Get("user") != "admin" || q.Get("password") != secret {
			description(`{"WARNING":"Need user=<username>&password=<password>"}`)(w, r)
			return
		}
		asked = append(asked, q.Get("cmnd"))
		if q.Get("cmnd") == "Status 8" {
			description(`{"StatusSNS":{"ENERGY":{"Total":1.234,"Power":5}}}`)(w, r)
			return
		}
		description(`{"Command":"Unknown"}`)(w, r)
	})
	m := open(t, "kind: tasmota, passwordKey: plug, url: '"+at+"'")
	for range 2 {
		if s, err := m.source.read(t.Context()); err != nil || s[0].watts != 5 {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if got := strings.Join(asked, ", "); got != "Status 10, Status 8, Status 8" {
		t.Errorf("unexpected commands %s", got)
	}
	if _, err := open(t, "kind: tasmota, url: '"+at+"'").source.read(t.Context()); dial.ReasonOf(
		err) != dial.ReasonAuth {
		t.Errorf("without a password: %v", err)
	}
}

// management is a fake management controller of a server.
type management struct {
	files    map[string]string
	sessions bool
	token    string
	logins   int
	logouts  int
	asked    []string
}

func (m *management) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.asked = append(m.asked, r.Method+" "+r.URL.Path)
	if m.sessions {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == sessions:
			var login struct{ UserName, Password string }
			if json.NewDecoder(r.Body).Decode(&login) != nil || login.Password != secret || login.UserName != "admin" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			m.logins++
			m.token = fmt.Sprint("tokentoken", m.logins)
			w.Header().Set("X-Auth-Token", m.token)
			w.Header().Set("Location", sessions+"/7")
			w.WriteHeader(http.StatusCreated)
			return
		case r.Header.Get("X-Auth-Token") != m.token || m.token == "":
			w.WriteHeader(http.StatusUnauthorized)
			return
		case r.Method == http.MethodDelete && r.URL.Path == sessions+"/7":
			m.logouts++
			w.WriteHeader(http.StatusNoContent)
			return
		}
	} else if _, password, _ := r.BasicAuth(); password != secret {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	text, ok := m.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, text)
}

// start starts a TLS server and returns a configuration entry for it.
func (m *management) start(t *testing.T, more string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(m)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("kind: redfish, passwordKey: plug, caFile: '%s', url: '%s', %s", ca, s.URL, more)
}

const (
	oneChassis = `{"Members":[{"@odata.id":"/redfish/v1/Chassis/1U"},{"@odata.id":"http://169.254.169.254/redfish/v1/x"}]}`
	chassis1U  = `{"EnvironmentMetrics":{"@odata.id":"/redfish/v1/Chassis/1U/EnvironmentMetrics"},"Power":{"@odata.id":"/redfish/v1/Chassis/1U/Power"},
		"Sensors":{"@odata.id":"/redfish/v1/Chassis/1U/Sensors"}}`
)

func TestRedfish(t *testing.T) {
	m := &management{files: map[string]string{
		"/redfish/v1/Chassis": oneChassis, "/redfish/v1/Chassis/1U": chassis1U,
		"/redfish/v1/Chassis/1U/Power":                made(t, "redfish_power.json"),
		"/redfish/v1/Chassis/1U/Sensors":              made(t, "redfish_sensors.json"),
		"/redfish/v1/Chassis/1U/Sensors/TotalPower":   `{"ReadingType":"Power","Reading":374,"ReadingUnits":"W"}`,
		"/redfish/v1/Chassis/1U/Sensors/PS1Energy":    `{"ReadingType":"EnergykWh","Reading":7.25}`,
		"/redfish/v1/Chassis/1U/EnvironmentMetrics":   `{"PowerWatts":{"Reading":360},"EnergykWh":{"Reading":12.5}}`,
		"/redfish/v1/Chassis/1U/Sensors/PS1OutputAmp": `{"ReadingType":"Current","Reading":7.25}`,
	}}
	entry := m.start(t, "auth: basic")
	read := func(channel string) ([]sample, error) {
		m.asked = nil
		more := ""
		if channel != "" {
			more = ", channels: ['" + channel + "']"
		}
		return open(t, entry+more).source.read(t.Context())
	}
	if s, err := read(""); err != nil || len(s) != 1 || s[0].watts != 360 || s[0].counts != 1_250_000 ||
		s[0].channel != "1U" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := read("1U#0"); err != nil || s[0].watts != 321 || s[0].counted {
		t.Errorf("a configured PowerControl: %+v, %v", s, err)
	}
	if s, err := read("1U#1"); err != nil || s[0].watts != 42.5 {
		t.Errorf("another PowerControl: %+v, %v", s, err)
	}
	if s, err := read("/redfish/v1/Chassis/1U/Sensors/PS1Energy"); err != nil || s[0].counts != 725_000 ||
		len(m.asked) != 1 {
		t.Errorf("a configured sensor: %+v, %v after %v", s, err, m.asked)
	}
	for _, channel := range []string{
		"2U", "1U#9", "1U#x", "/redfish/v1/Chassis/1U/Sensors/PS1OutputAmp", "/redfish/v1/absent",
	} {
		if s, err := read(channel); err == nil {
			t.Errorf("%s: %+v", channel, s)
		}
	}
	delete(m.files, "/redfish/v1/Chassis/1U/EnvironmentMetrics")
	device := open(t, entry)
	if s, err := device.source.read(t.Context()); err != nil || s[0].watts != 321 {
		t.Errorf("without EnvironmentMetrics: %+v, %v", s, err)
	}
	m.asked = nil
	if _, err := device.source.read(t.Context()); err != nil || len(m.asked) != 1 {
		t.Errorf("the second read: %v after %v", err, m.asked)
	}
	delete(m.files, "/redfish/v1/Chassis/1U/Power")
	if _, err := device.source.read(t.Context()); !dial.HasStatus(err, http.StatusNotFound) {
		t.Errorf("after the resource was removed: %v", err)
	}
	if s, err := device.source.read(t.Context()); err != nil || s[0].watts != 374 {
		t.Errorf("after an update: %+v, %v", s, err)
	}
	delete(m.files, "/redfish/v1/Chassis/1U/Sensors")
	m.files["/redfish/v1/Chassis/1U"] = `{"PowerSubsystem":{"@odata.id":"/redfish/v1/Chassis/1U/PowerSubsystem"}}`
	if _, err := read(""); err == nil || !strings.Contains(err.Error(), "PowerSubsystem/PowerSupplies/0/Metrics") {
		t.Errorf("without any known power: error %v, want one that suggests a channel", err)
	}
	const supply = "/redfish/v1/Chassis/1U/PowerSubsystem/PowerSupplies/0/Metrics"
	m.files[supply] = `{"InputPowerWatts":{"Reading":181},"EnergykWh":{"Reading":7.5}}`
	if s, err := read(supply); err != nil || s[0].watts != 181 || s[0].counts != 750_000 {
		t.Errorf("a configured power supply: %+v, %v", s, err)
	}
	m.files["/redfish/v1/Chassis"] = strings.Replace(oneChassis, "]", `,{"@odata.id":"/redfish/v1/Chassis/2U"}]`, 1)
	if _, err := read(""); err == nil || !strings.Contains(err.Error(), "1U, 2U") {
		t.Errorf("two chassis: %v", err)
	}
}

// TestRedfishSession verifies that a session is created once, again after the server has deleted it, and deleted
// when the poller stops.
func TestRedfishSession(t *testing.T) {
	m := &management{sessions: true, files: map[string]string{
		"/redfish/v1/Chassis": oneChassis, "/redfish/v1/Chassis/1U": chassis1U,
		"/redfish/v1/Chassis/1U/EnvironmentMetrics": `{"PowerWatts":{"Reading":360}}`,
	}}
	entry := m.start(t, "auth: session")
	device := open(t, entry)
	for range 3 {
		if _, err := device.source.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m.token = "" // as after a restart
	if _, err := device.source.read(t.Context()); err != nil || m.logins != 2 {
		t.Errorf("%v after %d logins", err, m.logins)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	new(Poller).follow(stopped, device)
	if m.logouts != 1 {
		t.Errorf("got %d deleted sessions, want 1", m.logouts)
	}
	if _, err := open(t, strings.Replace(entry, "kind", "username: you, kind",
		1)).source.read(t.Context()); dial.ReasonOf(
		err) != dial.ReasonAuth || err == nil {
		t.Errorf("another user: %v", err)
	}
	if _, err := open(t, strings.Replace(entry, "caFile", "name: x, caFile", 1)).source.read(t.Context()); err != nil {
		t.Error(err)
	}
	without := open(t, entry[:strings.Index(entry, "caFile")]+entry[strings.Index(entry, "url"):])
	if _, err := without.source.read(t.Context()); dial.ReasonOf(err) != dial.ReasonHTTP || err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("an untrusted certificate: %v", err)
	}
}

// TestForgedRequests verifies for many notations of URLs that a meter cannot be used to reach metadata services or
// loopback addresses, although private addresses are permitted.
func TestForgedRequests(t *testing.T) {
	var arrived atomic.Int64
	_, port, err := net.SplitHostPort(strings.TrimPrefix(serve(t, func(http.ResponseWriter, *http.Request) {
		arrived.Add(1)
	}), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	payloads, names := dialtest.Payloads(port)
	if len(payloads) < 30 {
		t.Fatalf("got only %d payloads", len(payloads))
	}
	refused := 0
	for _, p := range payloads {
		t.Run(p.Name, func(t *testing.T) {
			for kind := range kinds {
				// Some of these URLs are also rejected by the validation of the configuration, so it is bypassed.
				e := Entry{Name: "w", Node: "w", Kind: kind, URL: p.URL}
				e.Fill()
				e.URL = p.URL
				poller, err := New(Config{Meters: []Entry{e}}, Deps{Resolver: names.Resolver()})
				if err != nil {
					t.Fatal(err)
				}
				_, err = poller.meters[0].source.read(t.Context())
				if err == nil || !p.Numeric && dial.ReasonOf(err) != dial.ReasonAddress {
					t.Errorf("%s of %s: %v", kind, p.URL, err)
				}
				if dial.ReasonOf(err) == dial.ReasonAddress {
					refused++
				}
			}
		})
	}
	if arrived.Load() != 0 {
		t.Errorf("%d requests reached the server", arrived.Load())
	}
	t.Logf("%d payloads, %d kinds of meters: %d rejected by the dialer, others unreachable", len(payloads), len(kinds),
		refused)
}

// TestRedirects verifies that redirects are not followed, because the password would be sent to the target.
func TestRedirects(t *testing.T) {
	var arrived atomic.Int64
	other := serve(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1) })
	for _, to := range []string{
		"http://169.254.169.254/", other, other + "/rpc?x=1", "/elsewhere", "//evil.example/", "http://%zz",
		"gopher://x",
	} {
		requests := 0
		at := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		for _, kind := range []string{KindShelly1, KindShelly2, KindTasmota} {
			requests = 0
			_, err := open(t, "passwordKey: plug, kind: "+kind+", url: '"+at+"'").source.read(t.Context())
			if err == nil || dial.ReasonOf(err) != dial.ReasonAddress && dial.ReasonOf(err) != dial.ReasonHTTP ||
				requests > 1 {
				t.Errorf("%s to %s: %v after %d requests", kind, to, err, requests)
			}
		}
	}
	if arrived.Load() != 0 {
		t.Errorf("got %d followed redirects, want none", arrived.Load())
	}
}

// TestReboundName verifies that a name is rejected if it resolves to a forbidden address in a later poll.
func TestReboundName(t *testing.T) {
	u, err := url.Parse(serve(t, description(plug)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse([]byte("meters: [{node: w, kind: shelly2, url: 'http://plug.example:" + u.Port() + "'}]"))
	if err != nil {
		t.Fatal(err)
	}
	p,
		err := New(c, Deps{Loopback: true, Resolver: dialtest.Names{"plug.example": {
		"127.0.0.1",
		"169.254.169.254",
	}}.Resolver()})
	if err != nil {
		t.Fatal(err)
	}
	m := p.meters[0]
	if _, err := m.source.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.device.HTTP.CloseIdleConnections()
	if _, err := m.source.read(t.Context()); dial.ReasonOf(err) != dial.ReasonAddress {
		t.Errorf("got %v", err)
	}
}

// TestBadAnswers verifies that invalid responses are rejected with a reason, and that errors never contain the
// password even if the device returns it.
func TestBadAnswers(t *testing.T) {
	echo := func(r *http.Request) string {
		return r.URL.RawQuery + " " + r.Header.Get("Authorization") + " " + secret + " " + url.QueryEscape(secret)
	}
	for name, c := range map[string]struct {
		reason dial.Reason
		serve  http.HandlerFunc
	}{
		"1 GiB": {dial.ReasonSize, func(w http.ResponseWriter, _ *http.Request) {
			block := make([]byte, 1<<16)
			for range 1 << 14 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}},
		"HTML":    {dial.ReasonShape, description("<html>" + secret)},
		"nothing": {dial.ReasonShape, description("")},
		"404":     {dial.ReasonHTTP, http.NotFound},
		"500": {dial.ReasonHTTP, func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, echo(r), http.StatusInternalServerError)
		}},
		"401": {dial.ReasonAuth, func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, echo(r), http.StatusUnauthorized)
		}},
		"reset": {dial.ReasonHTTP, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"slow":  {dial.ReasonHTTP, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		"echo in a redirect": {dial.ReasonAddress, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://evil.example/?"+url.QueryEscape(echo(r)))
			w.WriteHeader(http.StatusFound)
		}},
		"echo in a bad header": {dial.ReasonHTTP, func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 "+echo(r)+"\r\n\r\n")
		}},
		"echo in an error": {dial.ReasonMissing, func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"switch:" + echo(r): map[string]any{
				"apower": 1, "aenergy": map[string]int{"total": 1},
			}, "switch:1": map[string]any{"apower": 1, "aenergy": map[string]int{"total": 1}}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			at := serve(t, c.serve)
			for _, kind := range []string{KindShelly1, KindShelly2, KindTasmota} {
				m := open(t, "passwordKey: plug, kind: "+kind+", url: '"+at+"'")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if name == "slow" {
					m.device.Timeout = 50 * time.Millisecond
				}
				_, err := m.source.read(ctx)
				cancel()
				switch {
				case err == nil:
					t.Fatalf("%s: expected an error", kind)
				case dial.ReasonOf(err) != c.reason && name != "echo in an error":
					t.Errorf("%s: %s: %v", kind, dial.ReasonOf(err), err)
				}
				for ; err != nil; err = errors.Unwrap(err) {
					if text := m.text(err); strings.Contains(text, "s3same") || len(text) > maxError+8 {
						t.Errorf("%s: %s", kind, text)
					}
				}
			}
		})
	}
}
