package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestStrangersSeeNothing requests every route and unknown paths without a token, with an invalid token, and with a
// token without permissions.
func TestStrangersSeeNothing(t *testing.T) {
	w := newWorld(t)
	h := w.handler()
	all := routes()
	for i := range all {
		rt := &all[i]
		target := rt.filled("a")
		for _, token := range []string{"", "wrong", strings.Repeat("x", 20_000)} {
			wantStatus(t, ask(t, h, rt.method, target, token, rt.example()), http.StatusUnauthorized,
				rt.method+" "+target+" with token "+shortened(token)[:min(len(token), 9)])
		}
		wantStatus(t, ask(t, h, rt.method, target, "", "", "Authorization", "Basic "+admin), http.StatusUnauthorized,
			target+" with a password")
		want := http.StatusForbidden
		switch {
		case rt.own:
			want = http.StatusUnauthorized
		case strings.Contains(rt.path, "openapi"):
			want = http.StatusOK
		}
		wantStatus(t, ask(t, h, rt.method, target, stranger, rt.example()), want,
			rt.method+" "+target+" without permissions")
	}
	for _, target := range []string{
		"/", "/api", "/api/v1", "/api/v1/", "/api/v1/nodes/", "/api/v1//nodes", "//api/v1/nodes", "/api/v1/./nodes",
		"/api/v1/x/../nodes", "/api/v1/namespaces//pods",
		"/API/v1/nodes", "/api/v1/Nodes", "/api/v1/nodes/power/x", "/metrics", "/debug/pprof/", "/debug/vars",
		"/healthz", "/readyz", "/api/v1/nodes%2Fpower", "/favicon.ico",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "PROPFIND"} {
			if answer := ask(t, h, method, target, "", ""); answer.Code != http.StatusUnauthorized {
				t.Errorf("%s %s without a token: %d", method, target, answer.Code)
			}
			if answer := ask(t, h, method, target, stranger, ""); answer.Code != http.StatusNotFound &&
				answer.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s without permissions: %d", method, target, answer.Code)
			}
		}
	}
}

// TestEveryRouteAnswers requests every route with each of its parameters as an administrator.
func TestEveryRouteAnswers(t *testing.T) {
	w := newWorld(t)
	h := w.handler()
	all := routes()
	for i := range all {
		rt := &all[i]
		if rt.own || rt.path == "/ingest" {
			continue
		}
		target := rt.filled("a")
		if answer := ask(t, h, rt.method, target, admin, rt.example()); answer.Code != rt.success() {
			t.Errorf("%s %s: %d %s", rt.method, target, answer.Code, answer.Body)
		}
		for _, p := range rt.query {
			query := url.Values{p.name: {p.example}}.Encode()
			if answer := ask(t, h, rt.method, target+"?"+query, admin, rt.example()); answer.Code/100 != 2 {
				t.Errorf("%s %s?%s: %d %s", rt.method, target, query, answer.Code, answer.Body)
			}
			if twice := ask(t, h, rt.method, target+"?"+query+"&"+query, admin, rt.example()); !p.many {
				wantStatus(t, twice, http.StatusBadRequest, target+" with two of "+p.name)
			}
			for what, value := range map[string]string{
				"empty": "", "long": strings.Repeat("x", 600), "no text": "a\x00b", "no UTF-8": "a\xff",
			} {
				wantStatus(t, ask(t, h, rt.method, target+"?"+url.Values{p.name: {value}}.Encode(), admin,
					rt.example()), http.StatusBadRequest, target+": "+what+" "+p.name)
			}
			if p.kind != kindText || p.among != nil || p.name == "kind" || p.name == "groupBy" {
				wantStatus(t, ask(t, h, rt.method, target+"?"+p.name+"=nonsense", admin, rt.example()),
					http.StatusBadRequest, target+": nonsense in "+p.name)
			}
			capital := strings.ToUpper(p.name[:1]) + p.name[1:]
			wantStatus(t, ask(t, h, rt.method, target+"?"+capital+"="+url.QueryEscape(p.example), admin, rt.example()),
				http.StatusBadRequest, target+" with "+capital)
		}
		for _, query := range []string{"unknown=1", "%zz=1", "a;b", strings.Repeat("a", 20_000)} {
			if answer := ask(t, h, rt.method, target+"?"+query, admin,
				rt.example()); answer.Code != http.StatusBadRequest && answer.Code != http.StatusRequestURITooLong {
				t.Errorf("%s?%.20s: %d", target, query, answer.Code)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	h := newWorld(t).handler()
	for _, target := range []string{"/api/v1/nodes", "/nothing", "/api/v1/ledger?x=1"} {
		answer := ask(t, h, "GET", target, admin, "").Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer",
		} {
			if got := answer.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", target, name, got, want)
			}
		}
		if !strings.Contains(answer.Get("Vary"), "Authorization") ||
			!strings.Contains(answer.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %v", target, answer)
		}
	}
}

func TestNoRoute(t *testing.T) {
	h := newWorld(t).handler()
	wantStatus(t, ask(t, h, "GET", "/api/v1/nothing", admin, ""), http.StatusNotFound, "no route")
	answer := ask(t, h, "DELETE", "/api/v1/decisions", admin, "")
	wantStatus(t, answer, http.StatusMethodNotAllowed, "no such method")
	if got := answer.Header().Get("Allow"); got != "GET, POST" {
		t.Errorf("Allow: %q", got)
	}
	wantStatus(t, ask(t, h, "PUT", "/ingest", admin, ""), http.StatusMethodNotAllowed, "PUT /ingest")
	if answer := ask(t, h, "HEAD", "/api/v1/nodes", admin, ""); answer.Code != http.StatusOK {
		t.Errorf("HEAD: %d", answer.Code)
	}
}

// TestTokenHeader verifies the token header that the API server's proxy does not remove.
func TestTokenHeader(t *testing.T) {
	h := newWorld(t).handler()
	wantStatus(t, ask(t, h, "GET", "/api/v1/nodes", "", "", "X-Kubenergy-Token", admin), http.StatusOK, "token header")
	wantStatus(t, ask(t, h, "GET", "/api/v1/nodes", "", "", "X-Kubenergy-Token", stranger), http.StatusForbidden,
		"token header")
}

// TestTenant verifies that a tenant cannot access another namespace by any combination of paths and parameters.
func TestTenant(t *testing.T) {
	w := newWorld(t)
	h := w.handler()
	secrets := []string{"secret", "uid-b", "job-of-b", "record-b"}
	all := routes()
	for i := range all {
		rt := &all[i]
		if rt.own || strings.Contains(rt.path, "openapi") || rt.path == "/ingest" {
			continue
		}
		if !strings.Contains(rt.path, "{namespace}") {
			wantStatus(t, ask(t, h, rt.method, rt.path, tenantA, rt.example()), http.StatusForbidden, rt.path+" of all")
			wantStatus(t, ask(t, h, rt.method, rt.path+"?namespace=a", tenantA, rt.example()), http.StatusForbidden,
				rt.path+" of all, with a filter")
			continue
		}
		own := ask(t, h, rt.method, rt.filled("a"), tenantA, "")
		wantStatus(t, own, http.StatusOK, rt.path+" of the tenant's namespace")
		for _, namespace := range []string{
			"b", "B", "a%2Fb", "a%2f..%2fb", "..%2Fb", "%62", "b%00", "a%00b", "a,b", "b%20", "*", "a%2Fpods", "b%2F",
			"nowhere", ".", "%2e%2e",
		} {
			answer := ask(t, h, rt.method, rt.filled(namespace), tenantA, "")
			if answer.Code != http.StatusForbidden && answer.Code != http.StatusNotFound ||
				leaks(answer.Body.String(), secrets) {
				t.Errorf("%s of %s: %d %s", rt.path, namespace, answer.Code, answer.Body)
			}
		}
		for _, query := range []string{
			"namespace=b", "namespace=a&namespace=b", "Namespace=b", "namespaces=b", "ns=b", "pod=secret-y",
			"pod=b/secret-y", "pod=uid-b", "owner=Job/secret", "owner=secret",
			"owner=Job/job-of-b", "uid=uid-b", "groupBy=namespace", "groupBy=namespace,owner,pod",
			"groupBy=uid&groupBy=node", "node=worker1", "node=worker1&groupBy=node,namespace",
			"site=de&groupBy=namespace", "kind=idle", "kind=foreign", "snapshots=true",
			"format=csv&groupBy=namespace,pod", "format=influx&groupBy=namespace,pod", "strategy=carbon%2Bwindow",
		} {
			answer := ask(t, h, rt.method, rt.filled("a")+"?"+query, tenantA, "")
			if answer.Code/100 == 5 || leaks(answer.Body.String(), secrets) && answer.Code == http.StatusOK {
				t.Errorf("%s?%s: %d %s", rt.path, query, answer.Code, answer.Body)
			}
		}
	}
	// Tenant a sees only its own usage, not the remaining usage of the node.
	for _, format := range []string{"", "&groupBy=node", "&groupBy=namespace,kind"} {
		sums := ask(t, h, "GET", "/api/v1/namespaces/a/ledger?from=-1d"+format, tenantA, "").Body.String()
		if !strings.Contains(sums, `"energyJoules":500`) || strings.Contains(sums, "1000") {
			t.Errorf("%s: %s", format, sums)
		}
	}
	power := ask(t, h, "GET", "/api/v1/namespaces/a/pods/secret-y/power", tenantA, "")
	if power.Code != http.StatusOK || !strings.Contains(power.Body.String(), `"points":[]`) {
		t.Errorf("pod of another namespace: status %d, body %s", power.Code, power.Body)
	}
	// POST /ingest: tenant a may create Jobs in its own namespace only.
	wantStatus(t, ask(t, h, "POST", "/ingest", tenantA, `{"ID":"x","cpu":1}`), http.StatusCreated,
		"Job in the tenant's namespace")
	for _, namespace := range []string{"b", "kube-system"} {
		wantStatus(t, ask(t, h, "POST", "/ingest", tenantA, `{"ID":"x","cpu":1,"namespace":"`+namespace+`"}`),
			http.StatusForbidden, "Job in namespace "+namespace)
	}
	wantStatus(t, ask(t, h, "POST", "/ingest", admin, `{"ID":"x","cpu":1,"namespace":"kube-system"}`),
		http.StatusForbidden, "Job in a namespace that is not enabled")
}

func leaks(body string, secrets []string) bool {
	return slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(body, s) })
}
