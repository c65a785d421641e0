package controller

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// apiServer is a fake API server with the features that the controller uses: objects in JSON, lists, watches,
// statuses and clocks.
type apiServer struct {
	mu       sync.Mutex
	version  int
	objects  map[string]map[string]any // by path
	watchers map[chan change]string    // by path prefix
	noCRDs   bool                      // our CRDs are not installed
	lacking  int                       // number of requests for missing CRDs
	statuses map[string]int            // number of status writes by path
	ended    chan struct{}
	server   *httptest.Server
}

type change struct {
	kind   string
	object map[string]any
}

// served lists the resources by group and version.
var served = map[string]map[string]string{
	"v1": {
		"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "configmaps": "ConfigMap",
		"events": "Event",
	},
	"batch/v1":                 {"jobs": "Job", "cronjobs": "CronJob"},
	"coordination.k8s.io/v1":   {"leases": "Lease"},
	"events.k8s.io/v1":         {"events": "Event"},
	"authentication.k8s.io/v1": {"selfsubjectreviews": "SelfSubjectReview"},
	"kubenergy.io/v1alpha1": {
		"gridzones": "GridZone", "powerprofiles": "PowerProfile",
		"energypolicies": "EnergyPolicy", "energybudgets": "EnergyBudget",
	},
}

var clusterScoped = []string{"nodes", "namespaces", "gridzones", "powerprofiles", "selfsubjectreviews"}

func newAPIServer(t testing.TB) *apiServer {
	s := &apiServer{
		objects: map[string]map[string]any{}, watchers: map[chan change]string{}, statuses: map[string]int{},
		ended: make(chan struct{}),
	}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		close(s.ended)
		s.server.Close()
	})
	return s
}

func (s *apiServer) config() *rest.Config {
	return &rest.Config{Host: s.server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// put stores an object, given as JSON or as a value.
func (s *apiServer) put(path string, object any) {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	var o map[string]any
	if err := json.Unmarshal(data, &o); err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(path, o)
}

func (s *apiServer) store(path string, o map[string]any) {
	s.version++
	kind := "MODIFIED"
	if s.objects[path] == nil {
		kind = "ADDED"
	}
	meta, _ := o["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		o["metadata"] = meta
	}
	meta["resourceVersion"] = strconv.Itoa(s.version)
	if meta["uid"] == nil {
		meta["uid"] = path
	}
	if meta["generation"] == nil {
		meta["generation"] = 1
	}
	o["apiVersion"], o["kind"] = kindOf(path)
	s.objects[path] = o
	s.announce(path, change{kind, o})
}

func (s *apiServer) remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[path]; o != nil {
		delete(s.objects, path)
		s.announce(path, change{"DELETED", o})
	}
}

func (s *apiServer) announce(path string, c change) {
	for w, prefix := range s.watchers {
		if under(path, prefix) {
			w <- c
		}
	}
}

// under reports whether an object belongs to a list of its namespace or of all namespaces.
func under(path, list string) bool {
	if folder := path[:strings.LastIndexByte(path, '/')]; folder == list {
		return true
	}
	before, after, namespaced := strings.Cut(path, "/namespaces/")
	parts := strings.Split(after, "/")
	return namespaced && len(parts) == 3 && before+"/"+parts[1] == list
}

func (s *apiServer) read(path string, into any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[path]
	if o == nil {
		return false
	}
	data, err := json.Marshal(o)
	return err == nil && json.Unmarshal(data, into) == nil
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if s.discover(w, r) {
		return
	}
	s.mu.Lock()
	if s.noCRDs && strings.Contains(r.URL.Path, "kubenergy.io/v1alpha1") {
		s.lacking++
		s.mu.Unlock()
		s.refuse(w, http.StatusNotFound, "NotFound")
		return
	}
	s.mu.Unlock()
	last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	list := false
	for _, resources := range served {
		list = list || resources[last] != ""
	}
	switch {
	case r.Method == http.MethodGet && list && r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	case r.Method == http.MethodGet && list:
		s.list(w, r.URL.Path)
	case r.Method == http.MethodGet:
		s.one(w, r.URL.Path)
	case r.Method == http.MethodPost:
		s.write(w, r, r.URL.Path, true)
	case r.Method == http.MethodPut:
		s.write(w, r, r.URL.Path, false)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.JSONPatchType):
		s.patch(w, r)
	default:
		s.refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (s *apiServer) refuse(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}

func (s *apiServer) reply(w http.ResponseWriter, value any) {
	if err := json.NewEncoder(w).Encode(value); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (s *apiServer) discover(w http.ResponseWriter, r *http.Request) bool {
	path := strings.Trim(r.URL.Path, "/")
	s.mu.Lock()
	hidden := s.noCRDs
	s.mu.Unlock()
	switch path {
	case "api":
		s.reply(w, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
		return true
	case "apis":
		var groups []any
		for _, gv := range slices.Sorted(maps.Keys(served)) {
			group, version, named := strings.Cut(gv, "/")
			if !named || hidden && group == "kubenergy.io" {
				continue
			}
			v := map[string]any{"groupVersion": gv, "version": version}
			groups = append(groups, map[string]any{"name": group, "versions": []any{v}, "preferredVersion": v})
		}
		s.reply(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
		return true
	}
	gv := strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/")
	resources := served[gv]
	if resources == nil || hidden && strings.HasPrefix(gv, "kubenergy.io") {
		return false
	}
	var all []any
	for name, kind := range resources {
		all = append(all, map[string]any{
			"name": name, "kind": kind, "namespaced": !slices.Contains(clusterScoped, name),
			"verbs": []string{"get", "list", "watch", "create", "update", "patch"},
		})
	}
	s.reply(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": all})
	return true
}

func kindOf(path string) (apiVersion, kind string) {
	for gv, resources := range served {
		for name, k := range resources {
			if strings.Contains(path, "/"+gv+"/") && strings.Contains(path+"/", "/"+name+"/") &&
				(k != "Namespace" || strings.Count(path, "/") < 5) {
				return gv, k
			}
		}
	}
	return "", ""
}

func (s *apiServer) list(w http.ResponseWriter, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for _, p := range slices.Sorted(maps.Keys(s.objects)) {
		if under(p, path) {
			items = append(items, s.objects[p])
		}
	}
	gv, kind := kindOf(path)
	s.reply(w, map[string]any{
		"kind": kind + "List", "apiVersion": gv, "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)},
		"items": items,
	})
}

func (s *apiServer) one(w http.ResponseWriter, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[path]; o != nil {
		s.reply(w, o)
		return
	}
	s.refuse(w, http.StatusNotFound, "NotFound")
}

func (s *apiServer) write(w http.ResponseWriter, r *http.Request, path string, create bool) {
	var o map[string]any
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		s.refuse(w, http.StatusBadRequest, "BadRequest")
		return
	}
	meta, _ := o["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		o["metadata"] = meta
	}
	if strings.HasSuffix(path, "selfsubjectreviews") {
		s.reply(w, o)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if create {
		path += "/" + fmt.Sprint(meta["name"])
		if s.objects[path] != nil {
			s.refuse(w, http.StatusConflict, "AlreadyExists")
			return
		}
	} else {
		path = strings.TrimSuffix(path, "/status")
		old := s.objects[path]
		if old == nil {
			s.refuse(w, http.StatusNotFound, "NotFound")
			return
		}
		if version := meta["resourceVersion"]; version != nil &&
			version != old["metadata"].(map[string]any)["resourceVersion"] {
			s.refuse(w, http.StatusConflict, "Conflict")
			return
		}
		s.statuses[path]++
	}
	s.store(path, o)
	s.reply(w, o)
}

func (s *apiServer) patch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := json.Marshal(s.objects[r.URL.Path])
	var body, patched []byte
	var patch jsonpatch.Patch
	var o map[string]any
	for _, step := range []func(){
		func() { body, err = io.ReadAll(r.Body) },
		func() { patch, err = jsonpatch.DecodePatch(body) },
		func() { patched, err = patch.Apply(old) },
		func() { err = json.Unmarshal(patched, &o) },
	} {
		if err == nil {
			step()
		}
	}
	if err != nil {
		s.refuse(w, http.StatusUnprocessableEntity, "Invalid")
		return
	}
	s.store(r.URL.Path, o)
	s.reply(w, o)
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	changes := make(chan change, 10_000) // more than the objects of a kind in any test
	gv, kind := kindOf(r.URL.Path)
	s.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for path, o := range s.objects {
			if under(path, r.URL.Path) {
				changes <- change{"ADDED", o}
			}
		}
		changes <- change{"BOOKMARK", map[string]any{"kind": kind, "apiVersion": gv, "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(s.version),
			"annotations":     map[string]any{"k8s.io/initial-events-end": "true"},
		}}}
	}
	s.watchers[changes] = r.URL.Path
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, changes)
		s.mu.Unlock()
	}()
	flush := func() { w.(http.Flusher).Flush() }
	flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.ended:
			return
		case c := <-changes:
			s.mu.Lock()
			s.reply(w, map[string]any{"type": c.kind, "object": c.object})
			s.mu.Unlock()
			flush()
		}
	}
}
