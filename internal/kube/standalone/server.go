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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json" // decodes integers as int64
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// Options configures a [Server].
type Options struct {
	Folder string       // directory with YAML files of KubEnergy objects
	State  string       // file that stores statuses, ConfigMaps and Jobs
	Token  string       // grants full access
	Reader string       // grants read access to the energy of jobs; empty if there is none
	API    http.Handler // serves requests to the proxy of the controller's service
	Log    *slog.Logger
	// Write replaces State durably. It defaults to an implementation of the server. It may return [ErrUncertain] if
	// State may have been replaced.
	Write func(file string, data []byte) error
}

// Server is an http.Handler. Use [New] to create one, and call [Server.Run] to run it.
type Server struct {
	o Options

	// writing is held during each change, from reading the previous object to publishing the new one, and while
	// State is written. It must be locked before mu.
	writing      sync.Mutex
	issued       int64  // highest version ever assigned; versions of failed writes are not reused
	dirty        bool   // State does not contain all published changes
	uncertain    bool   // State may contain a failed change that was not published
	lost         error  // reason why State could not be read, in which case it is not overwritten
	read, failed string // fingerprint of the files when they were last read, and the last error

	// mu guards the published state, which is only modified while writing is held as well.
	mu      sync.Mutex
	objects map[schema.GroupVersionKind]map[string]*object // by namespace/name; objects are replaced, never modified
	version int64
	past    []event       // most recent events, oldest first
	dropped int64         // version of the newest event that is no longer in past
	news    chan struct{} // closed at the next change
}

type object = unstructured.Unstructured

// event is a change to an object.
type event struct {
	kind    schema.GroupVersionKind
	key     string
	what    watch.EventType
	version int64
	is      *object
}

const (
	maxPast = 8192
	maxBody = 8 << 20
)

// New returns a server that has read its files. It returns an error if a file in the directory is invalid. If State
// is not readable, the error is logged and returned by [Server.Writable].
func New(o Options) (*Server, error) {
	if o.Write == nil {
		o.Write = replaceFile
	}
	s := &Server{o: o, objects: map[schema.GroupVersionKind]map[string]*object{}, news: make(chan struct{})}
	for _, kind := range kinds {
		s.objects[kind] = map[string]*object{}
	}
	s.restore()
	s.issued = max(s.issued, time.Now().UnixMilli()) // exceed the versions of an earlier process
	s.version, s.dropped = s.issued, s.issued
	return s, s.load()
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given := []byte(r.Header.Get("Authorization"))
	if subtle.ConstantTimeCompare(given, []byte("Bearer "+s.o.Token)) != 1 {
		answer(w, nil, apierrors.NewUnauthorized("invalid token: use the token in the state directory"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	const proxy = "/services/https:kubenergy-controller:api/proxy"
	_, behind, proxied := strings.Cut(r.URL.Path, proxy)
	t, known := targetOf(r.URL.Path)
	switch {
	case proxied:
		r.URL.Path, r.URL.RawPath = behind, ""
		s.o.API.ServeHTTP(w, r)
	case r.Method == http.MethodPost && s.review(w, r):
	case known && r.Method == http.MethodGet && t.name == "":
		s.list(w, r, t)
	case known:
		o, err := s.one(r, t)
		if errors.Is(err, ErrUncertain) {
			panic(http.ErrAbortHandler) // an error response would imply that the request had no effect
		}
		answer(w, o, err)
	case r.URL.Path == "/version":
		write(w, http.StatusOK, version.Info{GitVersion: "v0.0.0-standalone", Major: "0", Minor: "0"})
	default:
		answer(w, nil, apierrors.NewNotFound(schema.GroupResource{Resource: r.URL.Path}, ""))
	}
}

// one serves a request for a single object.
func (s *Server) one(r *http.Request, t target) (*object, error) {
	body, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet {
		s.writing.Lock()
		defer s.writing.Unlock()
	}
	if r.Method == http.MethodPost {
		return s.create(t, body)
	}
	previous := s.Object(t.kind, t.namespace, t.name)
	if previous == nil {
		return nil, apierrors.NewNotFound(t.resource.GroupResource(), t.name)
	}
	switch r.Method {
	case http.MethodGet:
		return previous, nil
	case http.MethodDelete:
		_, err := s.commit(t.kind, t.key(), nil)
		return previous, err
	case http.MethodPut:
		return s.update(t, previous, body)
	case http.MethodPatch:
		if body, err = patched(r.Header.Get("Content-Type"), previous, body); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch",
				t.resource.GroupResource(), t.name, err.Error(), 0, false)
		}
		return s.update(t, previous, body)
	}
	return nil, apierrors.NewMethodNotSupported(t.resource.GroupResource(), r.Method)
}

// bodyOf returns the body of a request as JSON. Typed clients send protobuf.
func bodyOf(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Type") == runtime.ContentTypeProtobuf {
		var o runtime.Object
		if o, _, err = clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
			body, err = stdjson.Marshal(o)
		}
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("reading the body: " + err.Error())
	}
	return body, nil
}

// patched returns the object with the patch applied.
func patched(media string, previous *object, patch []byte) ([]byte, error) {
	current, err := previous.MarshalJSON()
	if err != nil {
		return nil, err
	}
	switch types.PatchType(media) {
	case types.JSONPatchType:
		ops, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return ops.Apply(current)
	case types.MergePatchType:
		return jsonpatch.MergePatch(current, patch)
	}
	return nil, fmt.Errorf("patches of type %s are not supported", media)
}

func parse(t target, body []byte) (*object, error) {
	o := &object{}
	err := kube.CheckQuantities(body) // clients parse quantities
	if err == nil {
		err = json.Unmarshal(body, &o.Object)
	}
	if err != nil || o.Object == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("want an object: %v", err))
	}
	o.SetGroupVersionKind(t.kind)
	o.SetNamespace(t.namespace)
	return o, nil
}

// create adds an object. The caller must hold writing.
func (s *Server) create(t target, body []byte) (*object, error) {
	o, err := parse(t, body)
	if err != nil {
		return nil, err
	}
	t.name = o.GetName()
	switch {
	case t.name == "":
		return nil, apierrors.NewBadRequest("metadata.name is missing")
	case s.objects[t.kind][t.key()] != nil:
		return nil, apierrors.NewAlreadyExists(t.resource.GroupResource(), t.name)
	}
	return s.commit(t.kind, t.key(), o)
}

// update replaces either an object except for its status, or only its status. The caller must hold writing. A
// status is written asynchronously, at the latest after [look], because controllers recompute it after a restart.
// Therefore a full disk does not prevent status updates.
func (s *Server) update(t target, previous *object, body []byte) (*object, error) {
	o, err := parse(t, body)
	if err != nil {
		return nil, err
	}
	if v := o.GetResourceVersion(); v != "" && v != previous.GetResourceVersion() {
		return nil, apierrors.NewConflict(t.resource.GroupResource(), t.name, errors.New("the object was modified"))
	}
	if t.status {
		status := o.Object["status"]
		o = previous.DeepCopy()
		o.Object["status"] = status
		return s.set(t.kind, t.key(), o), nil
	}
	keepStatus(o, previous)
	o.SetName(t.name)
	return s.commit(t.kind, t.key(), o)
}

func keepStatus(o, previous *object) {
	if delete(o.Object, "status"); previous.Object["status"] != nil {
		o.Object["status"] = previous.Object["status"]
	}
}

// commit publishes a change after it has been written to State, if its kind is stored. If it returns an error, the
// change was not published, and was not written either unless the error is [ErrUncertain]. The caller must hold
// writing.
func (s *Server) commit(k schema.GroupVersionKind, key string, o *object) (*object, error) {
	if !kept(k) || s.lost != nil && k.Kind != "Job" { // objects of other kinds are recomputed if State was lost
		return s.set(k, key, o), nil
	}
	if err := s.repair(); err != nil {
		return nil, err
	}
	e := s.prepare(k, key, o)
	if e == nil {
		return s.objects[k][key], nil
	}
	if err := s.write(e); err != nil {
		if s.uncertain && s.repair() == nil {
			err = errors.New(err.Error() + "; the previous state was restored") // no longer an ErrUncertain
		}
		return nil, err
	}
	s.publish(e)
	return o, nil
}

// set publishes a change, which [Server.keep] writes to State later. The caller must hold writing.
func (s *Server) set(k schema.GroupVersionKind, key string, o *object) *object {
	e := s.prepare(k, key, o)
	if e == nil {
		return s.objects[k][key]
	}
	s.publish(e)
	s.dirty = s.dirty || kept(k)
	return o
}

// prepare returns the event that stores an object or, if o is nil, deletes it. It sets the metadata of the object.
// It returns nil if nothing would change. The caller must hold writing.
func (s *Server) prepare(k schema.GroupVersionKind, key string, o *object) *event {
	previous := s.objects[k][key]
	e := &event{kind: k, key: key, what: watch.Modified, is: o}
	switch {
	case o == previous:
		return nil
	case o == nil:
		e.what, e.is = watch.Deleted, previous.DeepCopy()
	case previous == nil:
		e.what = watch.Added
		o.SetGeneration(1)
		o.SetUID(uuid.NewUUID())
		if made := o.GetCreationTimestamp(); made.IsZero() {
			o.SetCreationTimestamp(metav1.Now())
		}
	default:
		o.SetUID(previous.GetUID())
		o.SetCreationTimestamp(previous.GetCreationTimestamp())
		o.SetGeneration(previous.GetGeneration())
		o.SetResourceVersion(previous.GetResourceVersion())
		if reflect.DeepEqual(o.Object, previous.Object) {
			return nil
		}
		if !reflect.DeepEqual(o.Object["spec"], previous.Object["spec"]) {
			o.SetGeneration(previous.GetGeneration() + 1)
		}
	}
	s.issued++
	e.version = s.issued
	e.is.SetResourceVersion(strconv.FormatInt(e.version, 10))
	return e
}

// publish applies an event to the objects and sends it to watches. The caller must hold writing.
func (s *Server) publish(e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.apply(s.objects[e.kind])
	s.version = e.version
	s.past = append(s.past, *e)
	if over := len(s.past) - maxPast; over > 0 {
		s.dropped = s.past[over-1].version
		s.past = slices.Delete(s.past, 0, over)
	}
	close(s.news)
	s.news = make(chan struct{})
}

func (e *event) apply(objects map[string]*object) {
	if objects[e.key] = e.is; e.what == watch.Deleted {
		delete(objects, e.key)
	}
}

// Replace replaces all objects of a kind that is not read from files, unless stays returns true for them. keep
// copies the fields to preserve from an object to its replacement. State is written up to [look] later, because the
// caller can repeat the call after a restart.
func (s *Server) Replace(k schema.GroupVersionKind, all []*object, stays func(metav1.Object) bool,
	keep func(o, previous *object),
) {
	s.writing.Lock()
	defer s.writing.Unlock()
	byKey := map[string]*object{}
	for key, previous := range s.objects[k] {
		if stays(previous) {
			byKey[key] = previous
		}
	}
	for _, o := range all {
		byKey[o.GetNamespace()+"/"+o.GetName()] = o
	}
	s.replace(k, byKey, keep)
}

// expire deletes events after an hour, like an API server.
func (s *Server) expire() {
	s.writing.Lock()
	defer s.writing.Unlock()
	for k, objects := range s.objects {
		for key, o := range objects {
			if made := o.GetCreationTimestamp(); k.Kind == "Event" && time.Since(made.Time) > time.Hour {
				s.set(k, key, nil)
			}
		}
	}
}

// replace replaces all objects of a kind. keep copies fields from an object to its replacement.
func (s *Server) replace(k schema.GroupVersionKind, all map[string]*object, keep func(o, previous *object)) {
	for key := range s.objects[k] {
		if all[key] == nil {
			s.set(k, key, nil)
		}
	}
	for key, o := range all {
		if previous := s.objects[k][key]; previous != nil && previous != o {
			keep(o, previous)
		}
		s.set(k, key, o)
	}
}

// Put stores an object after it has been written to disk. It returns an error if the object has changed since it
// was read. After an error, nothing has changed.
func (s *Server) Put(k schema.GroupVersionKind, o *object) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	key, version := o.GetNamespace()+"/"+o.GetName(), o.GetResourceVersion()
	if previous := s.objects[k][key]; version != "" && (previous == nil || previous.GetResourceVersion() != version) {
		return errors.New("the object has changed since it was read")
	}
	_, err := s.commit(k, key, o)
	return err
}

// Drop deletes an object after the change has been written to disk. After an error, the object still exists.
func (s *Server) Drop(k schema.GroupVersionKind, namespace, name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.commit(k, namespace+"/"+name, nil)
	return err
}

// Writable returns an error if State differs from the published objects and cannot be written. In that case, the
// caller must not act on stored objects.
func (s *Server) Writable() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.repair()
}

// All returns the objects of a kind. They must not be modified.
func (s *Server) All(k schema.GroupVersionKind) []*object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all(k, func(*object) bool { return true })
}

// Object returns an object, or nil if it does not exist. The object must not be modified.
func (s *Server) Object(k schema.GroupVersionKind, namespace, name string) *object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[k][namespace+"/"+name]
}

// selection returns a function that reports whether an object matches the selectors of a request.
func selection(r *http.Request, t target) (match func(*object) bool, err error) {
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	byField, errField := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err = errors.Join(err, errField); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(o *object) bool {
		return (t.namespace == "" || o.GetNamespace() == t.namespace) &&
			byLabel.Matches(labels.Set(o.GetLabels())) && byField.Matches(fields.Set{
			"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(),
		})
	}, nil
}

// all returns the objects of a kind that match, sorted by namespace and name. The caller must hold mu.
func (s *Server) all(k schema.GroupVersionKind, match func(*object) bool) (all []*object) {
	for _, key := range slices.Sorted(maps.Keys(s.objects[k])) {
		if o := s.objects[k][key]; match(o) {
			all = append(all, o)
		}
	}
	return all
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, t target) {
	match, err := selection(r, t)
	if err != nil {
		answer(w, nil, err)
		return
	}
	s.mu.Lock()
	found, since := s.all(t.kind, match), s.version
	s.mu.Unlock()
	q := r.URL.Query()
	if watching, _ := strconv.ParseBool(q.Get("watch")); !watching {
		all := unstructured.UnstructuredList{Object: map[string]any{}}
		all.SetAPIVersion(t.kind.GroupVersion().String())
		all.SetKind(t.kind.Kind + "List")
		all.SetResourceVersion(strconv.FormatInt(since, 10))
		for _, o := range found {
			all.Items = append(all.Items, *o)
		}
		write(w, http.StatusOK, &all)
		return
	}
	notify := stdjson.NewEncoder(w)
	w.Header().Set("Content-Type", "application/json")
	if from, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64); from > 0 && q.Get("sendInitialEvents") != "true" {
		s.watch(w, r, t, match, from)
		return
	}
	for _, o := range found {
		_ = notify.Encode(change{watch.Added, o}) // watch detects a disconnected client
	}
	if end := (&object{Object: map[string]any{}}); q.Get("sendInitialEvents") == "true" {
		end.SetGroupVersionKind(t.kind)
		end.SetResourceVersion(strconv.FormatInt(since, 10))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		_ = notify.Encode(change{watch.Bookmark, end})
	}
	s.watch(w, r, t, match, since)
}

// change is the serialized form of an event.
type change struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// watch sends changes after a version until the client disconnects or the timeout of the request expires.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target, match func(*object) bool, since int64) {
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(cmp.Or(seconds, 3600))*time.Second)
	defer cancel()
	notify := stdjson.NewEncoder(w)
	for {
		s.mu.Lock()
		news, lost := s.news, since < s.dropped
		first, _ := slices.BinarySearchFunc(s.past, since+1,
			func(e event, v int64) int { return cmp.Compare(e.version, v) })
		events := slices.Clone(s.past[first:])
		s.mu.Unlock()
		if lost {
			// the last event of this watch
			_ = notify.Encode(change{watch.Error, statusOf(apierrors.NewResourceExpired("too old"))})
			return
		}
		for _, e := range events {
			since = e.version
			if e.kind != t.kind {
				continue
			}
			if !match(e.is) { // a modified object no longer matches; clients ignore deletions of unknown objects
				e.what = watch.Deleted
			}
			if notify.Encode(change{e.what, e.is}) != nil {
				return
			}
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-news:
		}
	}
}

func answer(w http.ResponseWriter, o *object, err error) {
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
	_ = stdjson.NewEncoder(w).Encode(body) // the client may have disconnected
}
