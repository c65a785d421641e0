package meter

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// TestDigestVectors uses the test vectors of RFC 7616, section 3.9.1, and of curl (without qop).
func TestDigestVectors(t *testing.T) {
	const header = `Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm=SHA-256, ` +
		`nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"`
	c := readChallenge(http.Header{"Www-Authenticate": {
		`Digest realm="x", nonce="y", algorithm=MD5, qop="auth"`,
		header,
	}})
	if c == nil {
		t.Fatal("the challenge was not accepted")
	}
	got := c.answer("Mufasa", "Circle of Life", http.MethodGet, "/dir/index.html",
		"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ")
	for _, want := range []string{
		`response="753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"`, `qop=auth`, `nc=00000001`,
		`algorithm=SHA-256`,
		`opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"`, `username="Mufasa"`, `uri="/dir/index.html"`,
		`realm="http-auth@example.org"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("header %s does not contain %s", got, want)
		}
	}
	if again := c.answer("Mufasa", "x", http.MethodGet, "/", ""); !strings.Contains(again, "nc=00000002") ||
		strings.Contains(again, "f2/wE4q") {
		t.Errorf("unexpected second header: %s", again)
	}
	c = readChallenge(
		http.Header{"Www-Authenticate": {`Digest realm="testrealm", nonce="1053604145", algorithm="SHA-256"`}})
	const curl = `response="9dc55255f1a2537b838311674b621d45346b862a81631bb20e4ce356ef25062d"`
	if got := c.answer("testuser", "testpass", http.MethodGet, "/2061", ""); !strings.Contains(got, curl) ||
		strings.Contains(got, "qop") {
		t.Errorf("without qop: %s", got)
	}
}

func TestChallenges(t *testing.T) {
	for text, want := range map[string]string{
		`Digest qop="auth", realm="shellyplus1pm-a8032ab636ec", nonce="60dc2c59", algorithm=SHA-256`: "shellyplus1pm-a8032ab636ec 60dc2c59",
		`Basic realm="a, b=\"c\"", Digest realm="x", nonce = "n" , algorithm=sha-256,stale=TRUE`:     "x n stale",
		`digest realm="q\"uote", nonce="n", algorithm="SHA-256-sess", qop=auth`:                      `q"uote n sess`,
		`Digest realm="x", nonce="n", algorithm=MD5`:                                                 "",
		`Digest realm="x", nonce="n"`:                                                                "", // MD5
		`Digest realm="x", algorithm=SHA-256`:                                                        "",
		`Digest realm="x", nonce="n", algorithm=SHA-256, qop="auth-int"`:                             "",
		`Digest realm="x", nonce="n", algorithm=SHA-256-sess`:                                        "",
		"Digest realm=\"x\r\nEvil: 1\", nonce=\"n\", algorithm=SHA-256":                              "",
		`Basic realm="x"`: "", `realm="x"`: "", "": "", ",,,": "", `Digest`: "", `="`: "", `Digest "`: "",
		`Digest realm="` + strings.Repeat("x", maxChallenge) + `", nonce="n", algorithm=SHA-256`: "",
	} {
		got := ""
		if c := readChallenge(http.Header{"Www-Authenticate": {text}}); c != nil {
			got = c.realm + " " + c.nonce
			if c.stale {
				got += " stale"
			}
			if c.session {
				got += " sess"
			}
		}
		if got != want {
			t.Errorf("%.100s: %q, want %q", text, got, want)
		}
	}
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Basic realm="a, b=\"c\"", Digest realm="x", nonce = "n" , algorithm=sha-256,stale=TRUE, qop="auth"`)
	f.Add(`Digest qop="auth", realm="shellyplus1pm-a8032ab636ec", nonce="60dc2c59", algorithm=SHA-256, opaque="\\"`)
	f.Fuzz(func(t *testing.T, text string) {
		defer memtest.Limit(t, 100*len(text))()
		c := readChallenge(http.Header{"Www-Authenticate": {text}})
		if c == nil {
			return
		}
		header := c.answer(`ad"min`, "sesame", http.MethodGet, "/rpc", "")
		if strings.Contains(header, "sesame") || strings.ContainsFunc(header, func(r rune) bool {
			return r < ' ' ||
				r > '~'
		}) {
			t.Errorf("%q", header)
		}
		// A server must be able to parse the header.
		back := parseChallenges(header)
		if len(back) != 1 || back[0].parameters["realm"] != c.realm || back[0].parameters["nonce"] != c.nonce ||
			back[0].parameters["username"] != `ad"min` ||
			back[0].parameters["opaque"] != c.opaque {
			t.Errorf("%q was parsed as %+v", header, back)
		}
	})
}

// guard is a fake device that requires digest authentication, like a Shelly. It tracks its nonces and their use
// counts.
type guard struct {
	t        *testing.T
	password string
	lasts    int // maximum uses of a nonce
	md5      bool

	nonces   map[string]uint64 // last use count
	issued   int
	refused  int
	accepted int
}

func (g *guard) protect(next http.HandlerFunc) http.HandlerFunc {
	g.nonces = map[string]uint64{}
	return func(w http.ResponseWriter, r *http.Request) {
		stale := false
		if header := r.Header.Get("Authorization"); header != "" {
			var ok bool
			if ok, stale = g.check(r, header); ok {
				g.accepted++
				next(w, r)
				return
			}
			if !stale {
				g.refused++
			}
		}
		g.issued++
		nonce := fmt.Sprintf("n%08x", g.issued)
		g.nonces[nonce] = 0
		algorithm := "SHA-256"
		if g.md5 {
			algorithm = "MD5"
		}
		challenge := fmt.Sprintf(`Digest qop="auth", realm="shellyplusplugs-x", nonce="%s", algorithm=%s`, nonce,
			algorithm)
		if stale {
			challenge += ", stale=true"
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// check verifies the response of a client independently of the implementation under test.
func (g *guard) check(r *http.Request, header string) (ok, stale bool) {
	all := parseChallenges(header)
	if len(all) != 1 || all[0].scheme != "Digest" {
		g.t.Errorf("unexpected Authorization header %q", header)
		return false, false
	}
	p := all[0].parameters
	var count uint64
	if _, err := fmt.Sscanf(p["nc"], "%08x", &count); err != nil || len(p["nc"]) != 8 {
		g.t.Errorf("unexpected nc %q", p["nc"])
	}
	last, known := g.nonces[p["nonce"]]
	if known && count <= last {
		g.t.Errorf("nonce %s was used with count %d after %d", p["nonce"], count, last)
	}
	if p["uri"] != r.URL.RequestURI() || p["username"] != "admin" || p["qop"] != "auth" || len(p["cnonce"]) < 16 {
		g.t.Errorf("%q for %s", header, r.URL)
	}
	one, two := hash("admin:"+p["realm"]+":"+g.password), hash(r.Method+":"+p["uri"])
	if p["response"] != hash(one+":"+p["nonce"]+":"+p["nc"]+":"+p["cnonce"]+":auth:"+two) {
		return false, false
	}
	if !known || count > uint64(g.lasts) {
		return false, true
	}
	g.nonces[p["nonce"]] = count
	return true, false
}
