package meter

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// challenge is a digest authentication challenge as defined by RFC 7616. Only SHA-256 is supported, because a proof
// with MD5 could be used to recover the password.
type challenge struct {
	realm, nonce, opaque string
	session              bool // SHA-256-sess
	qop                  bool // qop=auth; otherwise RFC 2069
	stale                bool // the nonce has expired, but the password was correct

	count uint32 // number of uses of the nonce
}

const (
	maxChallenge = 4096
	// A server counts the uses of a nonce. A new one is requested after this number.
	maxUses = 1 << 30
)

// readChallenge returns the first supported challenge in the headers of a response, or nil if there is none.
func readChallenge(h http.Header) *challenge {
	for _, line := range h.Values("WWW-Authenticate") {
		if len(line) > maxChallenge {
			continue
		}
		for _, c := range parseChallenges(line) {
			if met := c.digest(); met != nil && strings.EqualFold(c.scheme, "Digest") {
				return met
			}
		}
	}
	return nil
}

// offered is an authentication scheme with its parameters.
type offered struct {
	scheme     string
	parameters map[string]string // keys in lower case
}

func (o *offered) digest() *challenge {
	c := &challenge{realm: o.parameters["realm"], nonce: o.parameters["nonce"], opaque: o.parameters["opaque"]}
	c.stale = strings.EqualFold(o.parameters["stale"], "true")
	switch strings.ToUpper(o.parameters["algorithm"]) {
	case "SHA-256":
	case "SHA-256-SESS":
		c.session = true
	default:
		return nil
	}
	if qop, ok := o.parameters["qop"]; ok {
		for option := range strings.SplitSeq(qop, ",") {
			c.qop = c.qop || strings.EqualFold(strings.TrimSpace(option), "auth")
		}
		if !c.qop {
			return nil // only auth-int
		}
	}
	if c.nonce == "" || c.session && !c.qop || !quotable(c.realm) || !quotable(c.nonce) || !quotable(c.opaque) {
		return nil
	}
	return c
}

// quotable reports whether a text from a server may be included in a request header.
func quotable(s string) bool { return s == "" || plain(s) }

// challengeWord matches a scheme, or a parameter with its quoted or unquoted value, in a header that may contain
// several schemes, e.g. Basic realm="x", Digest realm="y", nonce="z".
var (
	challengeWord = regexp.MustCompile(`(?s)([^\s,="]+)(?:[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,="]*)))?`)
	escaped       = regexp.MustCompile(`(?s)\\(.)`)
)

func parseChallenges(text string) (all []offered) {
	for _, at := range challengeWord.FindAllStringSubmatchIndex(text, -1) {
		part := func(i int) string { return text[max(at[2*i], 0):max(at[2*i+1], 0)] }
		last := len(all) - 1
		switch name := strings.ToLower(part(1)); {
		case at[4] < 0 && at[6] < 0:
			all = append(all, offered{scheme: part(1), parameters: map[string]string{}})
		case last < 0:
			return nil // a parameter without a scheme
		case all[last].parameters[name] == "":
			all[last].parameters[name] = escaped.ReplaceAllString(part(2), "$1") + part(3)
		}
	}
	return all
}

// answer returns the Authorization header for a request and increments the use count. If cnonce is empty, a random
// one is generated.
func (c *challenge) answer(user, password, method, uri, cnonce string) string {
	if cnonce == "" {
		cnonce = rand.Text()
	}
	c.count++
	one, algorithm := hash(user+":"+c.realm+":"+password), "SHA-256"
	if c.session {
		one, algorithm = hash(one+":"+c.nonce+":"+cnonce), "SHA-256-sess"
	}
	two := hash(method + ":" + uri)
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	header := fmt.Sprintf(`Digest username="%s", realm="%s", nonce="%s", uri="%s", algorithm=%s`,
		quote.Replace(user), quote.Replace(c.realm), quote.Replace(c.nonce), uri, algorithm)
	if c.qop {
		nc := fmt.Sprintf("%08x", c.count)
		header += fmt.Sprintf(`, response="%s", qop=auth, nc=%s, cnonce="%s"`,
			hash(strings.Join([]string{one, c.nonce, nc, cnonce, "auth", two}, ":")), nc, cnonce)
	} else {
		header += fmt.Sprintf(`, response="%s"`, hash(one+":"+c.nonce+":"+two))
	}
	if c.opaque != "" {
		header += fmt.Sprintf(`, opaque="%s"`, quote.Replace(c.opaque))
	}
	return header
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
