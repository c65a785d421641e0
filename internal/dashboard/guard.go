package dashboard

import (
	"crypto/subtle"
	"net"
	"net/http"
)

// guard only admits requests of the browser that received the secret. It rejects cross-site requests, including
// those of sites that resolve their own name to this address (DNS rebinding).
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policyCSP)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send forms with the origin "null"
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		origin := r.Header.Get("Origin")
		switch {
		case !s.ours(r.Host):
			refuse(w, http.StatusMisdirectedRequest, "this page is only served as "+s.host)
		case origin != "" && origin != "http://"+r.Host,
			r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
			refuse(w, http.StatusForbidden, "cross-site requests are rejected")
		case len(r.URL.RawQuery) > maxQuery:
			refuse(w, http.StatusRequestURITooLong, "the URL is too long")
		case r.URL.Query().Get(keyName) != "":
			s.enter(w, r)
		case !s.entered(r):
			refuse(w, http.StatusForbidden, "open the URL that kubenergy dashboard printed. It is valid once, "+
				"in one browser. Start the command again to get a new one")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ours reports whether a host is the address of this server, or localhost with its port.
func (s *Server) ours(host string) bool {
	name, port, err := net.SplitHostPort(host)
	_, own, errOwn := net.SplitHostPort(s.host)
	return err == nil && errOwn == nil && port == own && (host == s.host || name == "localhost")
}

func (s *Server) entered(r *http.Request) bool {
	c, err := r.Cookie(s.cookie())
	return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(s.session)) == 1
}

// cookie returns the name of the cookie, which includes the port because all ports of a host share their cookies.
func (s *Server) cookie() string {
	_, port, _ := net.SplitHostPort(s.host)
	return cookieName + "-" + port
}

// enter exchanges the secret for a cookie. The secret is only valid once.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	if foreign(r.RemoteAddr, s.host) {
		refuse(w, http.StatusForbidden, "this page belongs to another account")
		return
	}
	given := r.URL.Query().Get(keyName)
	s.mu.Lock()
	right := s.key != "" && subtle.ConstantTimeCompare([]byte(given), []byte(s.key)) == 1
	if right {
		s.key = ""
	}
	s.mu.Unlock()
	if !right && !s.entered(r) {
		refuse(w, http.StatusForbidden, "the URL is invalid or was already used: start kubenergy dashboard again")
		return
	}
	if right {
		http.SetCookie(w, &http.Cookie{
			Name: s.cookie(), Value: s.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
