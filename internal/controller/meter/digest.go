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

// challenge is how a server wants to be told who asks, by RFC 7616. SHA-256 is the only algorithm: a device that offers
// MD5 is not told anything.
type challenge struct {
	realm, nonce, opaque string
	session              bool // SHA-256-sess
	qop                  bool // qop=auth; without, it is RFC 2069
	stale                bool // the nonce is too old, and the password was right

	count uint32 // how often the nonce was used
}

const (
	maxChallenge = 4096
	// A server remembers how often a nonce was used; beyond, another one is asked for.
	maxUses = 1 << 30
)

// readChallenge returns the challenge among the headers of an answer that it can meet, or nil.
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

// offered is a scheme and its parameters.
type offered struct {
	scheme     string
	parameters map[string]string // by their names in lower case
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
			return nil // auth-int alone
		}
	}
	if c.nonce == "" || c.session && !c.qop || !quotable(c.realm) || !quotable(c.nonce) || !quotable(c.opaque) {
		return nil
	}
	return c
}

// quotable reports whether a text of a server may be sent back in a header.
func quotable(s string) bool { return s == "" || plain(s) }

// Of a header that may offer several schemes, as Basic realm="x", Digest realm="y", nonce="z": a scheme, or a parameter
// with the quoted or the bare value behind its name.
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
			return nil // a parameter of nothing
		case all[last].parameters[name] == "":
			all[last].parameters[name] = escaped.ReplaceAllString(part(2), "$1") + part(3)
		}
	}
	return all
}

// answer returns the header that meets the challenge for one request, and counts it. cnonce is random; "" draws one.
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
