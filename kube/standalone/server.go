package standalone

import (
	"cmp"
	"context"
	"crypto/subtle"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json" // integers stay integers
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// Options are what a [Server] is made of.
type Options struct {
	Folder string       // of YAML files with our kinds
	State  string       // file in which the rest is kept
	Token  string       // whoever shows it may do everything
	API    http.Handler // answers what is asked through the proxy of the controller's service; nil: nothing does
	Log    *slog.Logger
}

// Server is a http.Handler. Make it with [New], and [Server.Run] it.
type Server struct {
	o Options

	mu      sync.Mutex
	objects map[*kind]map[string]*unstructured.Unstructured // by namespace/name; an object is replaced, never changed
	version int64
	past    []event       // the youngest, the oldest of them first
	dropped int64         // version of the youngest that is not in past
	news    chan struct{} // closed at the next change
	dirty   bool

	read   string // what the files were when they were read last
	failed string // why they were not
}

// event is a change of an object.
type event struct {
	kind    *kind
	what    watch.EventType
	version int64
	is, was *unstructured.Unstructured // was is nil for what is new
}

const (
	mostPast = 8192
	mostBody = 8 << 20
)

// New returns a server that has read its files. What is wrong with them at the start is an error.
func New(o Options) (*Server, error) {
	began := time.Now().UnixMilli() // versions of an earlier process are older
	s := &Server{
		o: o, objects: map[*kind]map[string]*unstructured.Unstructured{}, news: make(chan struct{}), version: began,
		dropped: began,
	}
	for _, k := range kinds {
		s.objects[k] = map[string]*unstructured.Unstructured{}
	}
	if err := s.restore(); err != nil {
		return nil, err
	}
	return s, s.load()
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given := []byte(r.Header.Get("Authorization"))
	if subtle.ConstantTimeCompare(given, []byte("Bearer "+s.o.Token)) != 1 || s.o.Token == "" {
		answer(w, nil, apierrors.NewUnauthorized("want the token of the state folder"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	if t, ok := targetOf(r.URL.Path); ok {
		s.serve(w, r, t)
		return
	}
	const services = "/services/https:kubenergy-controller:api/proxy"
	switch _, behind, proxied := strings.Cut(r.URL.Path, services); {
	case proxied && s.o.API != nil:
		r.URL.Path, r.URL.RawPath = behind, ""
		r.Header.Set("Authorization", "Bearer "+s.o.Token)
		s.o.API.ServeHTTP(w, r)
	case r.Method == http.MethodPost:
		s.review(w, r)
	case r.URL.Path == "/version":
		write(w, http.StatusOK, version.Info{GitVersion: "v0.0.0-standalone", Major: "0", Minor: "0"})
	default:
		answer(w, nil, apierrors.NewNotFound(resource("", "", r.URL.Path).GroupResource(), ""))
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, t target) {
	switch {
	case r.Method == http.MethodGet && t.name == "":
		s.list(w, r, t)
	case r.Method == http.MethodGet:
		s.mu.Lock()
		o, err := s.get(t)
		s.mu.Unlock()
		answer(w, o, err)
	default:
		o, err := s.change(r, t)
		answer(w, o, err)
	}
}

func (t *target) key() string { return t.namespace + "/" + t.name }

// get returns an object. The lock is held.
func (s *Server) get(t target) (*unstructured.Unstructured, error) {
	if o := s.objects[t.kind][t.key()]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(t.GroupResource(), t.name)
}

// change does what a writing request asks for.
func (s *Server) change(r *http.Request, t target) (o *unstructured.Unstructured, err error) {
	body, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPost {
		return s.create(t, body)
	}
	was, err := s.get(t)
	if err != nil {
		return nil, err
	}
	switch r.Method {
	case http.MethodDelete:
		s.set(t.kind, t.key(), nil)
		return was, nil
	case http.MethodPut:
		return s.update(t, was, body)
	case http.MethodPatch:
		if body, err = patched(r.Header.Get("Content-Type"), was, body); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", t.GroupResource(),
				t.name, err.Error(), 0, false)
		}
		return s.update(t, was, body)
	}
	return nil, apierrors.NewMethodNotSupported(t.GroupResource(), r.Method)
}

// bodyOf returns the body as JSON: clients with types prefer protobuf.
func bodyOf(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Type") == runtime.ContentTypeProtobuf {
		var o runtime.Object
		if o, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
			body, err = stdjson.Marshal(o)
		}
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("reading the body: " + err.Error())
	}
	return body, nil
}

// patched returns an object with a patch applied.
func patched(media string, was *unstructured.Unstructured, patch []byte) ([]byte, error) {
	is, err := was.MarshalJSON()
	if err != nil {
		return nil, err
	}
	switch types.PatchType(media) {
	case types.JSONPatchType:
		ops, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return ops.Apply(is)
	case types.MergePatchType:
		return jsonpatch.MergePatch(is, patch)
	}
	return nil, fmt.Errorf("patches of type %s are not known here", media)
}

func parse(t target, body []byte) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &o.Object); err != nil || o.Object == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("want an object: %v", err))
	}
	o.SetAPIVersion(t.apiVersion())
	o.SetKind(t.kind.name)
	return o, nil
}

// create adds an object. The lock is held.
func (s *Server) create(t target, body []byte) (*unstructured.Unstructured, error) {
	o, err := parse(t, body)
	if err != nil {
		return nil, err
	}
	o.SetNamespace(t.namespace)
	t.name = o.GetName()
	switch {
	case t.name == "":
		return nil, apierrors.NewBadRequest("metadata.name is missing")
	case s.objects[t.kind][t.key()] != nil:
		return nil, apierrors.NewAlreadyExists(t.GroupResource(), t.name)
	}
	return s.set(t.kind, t.key(), o), nil
}

// update replaces an object, or its status. The lock is held.
func (s *Server) update(t target, was *unstructured.Unstructured, body []byte) (*unstructured.Unstructured, error) {
	o, err := parse(t, body)
	if err != nil {
		return nil, err
	}
	if v := o.GetResourceVersion(); v != "" && v != was.GetResourceVersion() {
		return nil, apierrors.NewConflict(t.GroupResource(), t.name, errors.New("it has changed since"))
	}
	if t.status {
		status := o.Object["status"]
		o = was.DeepCopy()
		o.Object["status"] = status
	} else if status, has := was.Object["status"]; has {
		o.Object["status"] = status
	} else {
		delete(o.Object, "status")
	}
	o.SetNamespace(t.namespace)
	o.SetName(t.name)
	return s.set(t.kind, t.key(), o), nil
}

// set stores an object, nil to delete it, and tells watches. What is as it was is no change. The lock is held.
func (s *Server) set(k *kind, key string, o *unstructured.Unstructured) *unstructured.Unstructured {
	was := s.objects[k][key]
	e := event{kind: k, what: watch.Modified, is: o, was: was}
	switch {
	case o == nil:
		e.what, e.is = watch.Deleted, was.DeepCopy()
		delete(s.objects[k], key)
	case was == nil:
		e.what = watch.Added
		o.SetGeneration(1)
		o.SetUID(uuid.NewUUID())
		if made := o.GetCreationTimestamp(); made.IsZero() {
			o.SetCreationTimestamp(metav1.Now())
		}
	default:
		o.SetUID(was.GetUID())
		o.SetCreationTimestamp(was.GetCreationTimestamp())
		o.SetGeneration(was.GetGeneration())
		o.SetResourceVersion(was.GetResourceVersion())
		if reflect.DeepEqual(o.Object, was.Object) {
			return was
		}
		if !reflect.DeepEqual(o.Object["spec"], was.Object["spec"]) {
			o.SetGeneration(was.GetGeneration() + 1)
		}
	}
	s.version++
	e.version = s.version
	e.is.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if o != nil {
		s.objects[k][key] = o
	}
	s.past = append(s.past, e)
	if over := len(s.past) - mostPast; over > 0 {
		s.dropped = s.past[over-1].version
		s.past = slices.Delete(s.past, 0, over)
	}
	s.dirty = s.dirty || k.kept
	close(s.news)
	s.news = make(chan struct{})
	return o
}

// Put makes an object of a kind of the table, or replaces it with its status unless there need only be one of its name.
func (s *Server) Put(o *unstructured.Unstructured, once bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, key := kindOf(o.GetAPIVersion(), o.GetKind()), o.GetNamespace()+"/"+o.GetName()
	if k != nil && (!once || s.objects[k][key] == nil) {
		s.set(k, key, o)
	}
}

// Object returns an object; nil: there is none. Read only.
func (s *Server) Object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[kindOf(apiVersion, kind)][namespace+"/"+name]
}

// Objects returns the objects of a kind that match a selector, in order. Read only.
func (s *Server) Objects(apiVersion, name string, match labels.Selector) (all []*unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all(target{kind: kindOf(apiVersion, name)}, func(o *unstructured.Unstructured) bool {
		return match.Matches(labels.Set(o.GetLabels()))
	})
}

// Delete removes an object.
func (s *Server) Delete(o *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, key := kindOf(o.GetAPIVersion(), o.GetKind()), o.GetNamespace()+"/"+o.GetName()
	if s.objects[k][key] != nil {
		s.set(k, key, nil)
	}
}

// all returns the objects that match, by namespace and name. The lock is held.
func (s *Server) all(t target, match func(*unstructured.Unstructured) bool) (all []*unstructured.Unstructured) {
	for _, key := range slices.Sorted(maps.Keys(s.objects[t.kind])) {
		o := s.objects[t.kind][key]
		if (t.namespace == "" || o.GetNamespace() == t.namespace) && match(o) {
			all = append(all, o)
		}
	}
	return all
}

// selection reads the selectors of a request.
func selection(r *http.Request) (match func(*unstructured.Unstructured) bool, err error) {
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	byField, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	return func(o *unstructured.Unstructured) bool {
		return byLabel.Matches(labels.Set(o.GetLabels())) && byField.Matches(fields.Set{
			"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(),
		})
	}, nil
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, t target) {
	match, err := selection(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	if r.URL.Query().Get("watch") != "" && r.URL.Query().Get("watch") != "false" {
		s.watch(w, r, t, match)
		return
	}
	s.mu.Lock()
	all := unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": t.apiVersion(), "kind": t.kind.name + "List",
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10)},
	}}
	for _, o := range s.all(t, match) {
		all.Items = append(all.Items, *o)
	}
	s.mu.Unlock()
	write(w, http.StatusOK, &all)
}

// watch tells of changes from a version on until the client or its time ends.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target, match func(*unstructured.Unstructured) bool) {
	q := r.URL.Query()
	since, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(cmp.Or(seconds, 3600))*time.Second)
	defer cancel()
	w.Header().Set("Content-Type", "application/json")
	out, flush := stdjson.NewEncoder(w), http.NewResponseController(w)
	tell := func(what watch.EventType, o any) bool {
		return out.Encode(map[string]any{"type": what, "object": o}) == nil
	}
	if q.Get("sendInitialEvents") == "true" || since == 0 {
		s.mu.Lock()
		all := s.all(t, match)
		since = s.version
		s.mu.Unlock()
		for _, o := range all {
			tell(watch.Added, o)
		}
		end := &unstructured.Unstructured{Object: map[string]any{"apiVersion": t.apiVersion(), "kind": t.kind.name}}
		end.SetResourceVersion(strconv.FormatInt(since, 10))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		if q.Get("sendInitialEvents") == "true" {
			tell(watch.Bookmark, end)
		}
	}
	for {
		s.mu.Lock()
		news, lost := s.news, since < s.dropped
		first, _ := slices.BinarySearchFunc(s.past, since+1, func(e event, v int64) int { return cmp.Compare(e.version, v) })
		events := slices.Clone(s.past[first:])
		s.mu.Unlock()
		if lost {
			tell(watch.Error, statusOf(apierrors.NewResourceExpired("the changes since then are not kept")))
			return
		}
		for i := range events {
			e := &events[i]
			since = e.version
			if e.kind != t.kind || t.namespace != "" && e.is.GetNamespace() != t.namespace {
				continue
			}
			if what, is := e.of(match); what != "" && !tell(what, is) {
				return
			}
		}
		if flush.Flush() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-news:
		}
	}
}

// of returns what a change is to a watch: what begins to match is new, and what no longer does is gone.
func (e *event) of(match func(*unstructured.Unstructured) bool) (watch.EventType, *unstructured.Unstructured) {
	is, was := match(e.is), e.was != nil && match(e.was)
	switch {
	case e.what != watch.Modified && is, e.what == watch.Modified && is && was:
		return e.what, e.is
	case e.what == watch.Modified && is:
		return watch.Added, e.is
	case e.what == watch.Modified && was:
		return watch.Deleted, e.is
	}
	return "", nil
}

func answer(w http.ResponseWriter, o *unstructured.Unstructured, err error) {
	if err == nil {
		write(w, http.StatusOK, o)
		return
	}
	status := statusOf(err)
	write(w, int(status.Code), status)
}

func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus = apierrors.NewInternalError(err)
	errors.As(err, &known)
	status := known.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	return status
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = stdjson.NewEncoder(w).Encode(body) // who asked has gone
}
