package standalone_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube/standalone"
)

const zone = `apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: de}
spec: {zone: DE, default: true, carbon: {sources: [{typical: {}}]}}
`

// world is a server with its directory.
type world struct {
	folder, state string
	log           strings.Builder
	server        *standalone.Server
	config        *rest.Config
	end           func() // waits until all changes have been written
}

func begin(t *testing.T, folder, state string) *world {
	t.Helper()
	w := &world{folder: folder, state: state}
	var err error
	if w.server, err = standalone.New(standalone.Options{
		Folder: folder, State: state, Token: "secret", Reader: "reader", Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Run(ctx) }()
	w.config = &rest.Config{BearerToken: "secret", QPS: -1, Transport: inProcess{w.server}}
	w.end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return w
}

// inProcess serves requests without a network, so that it can be used with simulated time.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	p.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// onNetwork is like begin, but uses a real connection for watches.
func onNetwork(t *testing.T) *world {
	t.Helper()
	w := begin(t, t.TempDir(), filepath.Join(t.TempDir(), "objects.json"))
	server := httptest.NewServer(w.server)
	t.Cleanup(server.Close)
	w.config = &rest.Config{Host: server.URL, BearerToken: "secret"}
	return w
}
func file(t *testing.T, folder, name, text string) {
	t.Helper()
	draft := filepath.Join(folder, "."+name)
	if err := os.WriteFile(draft, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) zones(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(v1alpha1.GroupVersion.WithResource("gridzones"))
}

func TestFilesAndStatuses(t *testing.T) { synctest.Test(t, testFilesAndStatuses) }

func testFilesAndStatuses(t *testing.T) {
	folder, state := t.TempDir(), filepath.Join(t.TempDir(), "objects.json")
	file(t, folder, "zone.yaml", zone)
	w := begin(t, folder, state)
	patch := `{"spec":{"zone":"FR"},"status":{"nodes":7}}`
	o, err := w.zones(t).Patch(t.Context(), "de", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if current, _, _ := unstructured.NestedString(o.Object, "spec", "zone"); current != "DE" || o.GetGeneration() != 1 {
		t.Errorf("a patch of the status changed the spec to %s", current)
	}
	uid := o.GetUID()
	w.end()
	file(t, folder, "zone.yaml", strings.Replace(zone, "DE", "FR", 1))
	w = begin(t, folder, state)
	defer w.end()
	if o, err = w.zones(t).Get(t.Context(), "de", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	current, _, _ := unstructured.NestedString(o.Object, "spec", "zone")
	nodes, _, _ := unstructured.NestedInt64(o.Object, "status", "nodes")
	if current != "FR" || nodes != 7 || o.GetUID() != uid || o.GetGeneration() != 2 {
		t.Errorf("after a restart: zone %s, %d nodes, generation %d", current, nodes, o.GetGeneration())
	}
	stale := o.DeepCopy()
	stale.SetResourceVersion("1")
	if _, err := w.zones(t).Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("error of an update with an older version: %v", err)
	}
	if err := os.Remove(filepath.Join(folder, "zone.yaml")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(looks)
	if _, err = w.zones(t).Get(t.Context(), "de", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("error for the zone of a deleted file: %v", err)
	}
}

// looks is longer than the interval at which the files are checked. It passes quickly in tests with simulated time.
const looks = 3 * time.Second

func TestBrokenFile(t *testing.T) { synctest.Test(t, testBrokenFile) }

func testBrokenFile(t *testing.T) {
	folder, state := t.TempDir(), filepath.Join(t.TempDir(), "objects.json")
	broken := strings.Replace(zone, "zone: DE", "zon: DE", 1)
	file(t, folder, "zone.yaml", broken)
	_, err := standalone.New(standalone.Options{Folder: folder, State: state})
	if err == nil || !strings.Contains(err.Error(), "zone.yaml") || !strings.Contains(err.Error(), `"zon"`) {
		t.Errorf("error of New with an invalid file: %v", err)
	}
	file(t, folder, "zone.yaml", zone)
	w := begin(t, folder, state)
	defer w.end()
	file(t, folder, "zone.yaml", broken)
	file(t, folder, "other.yaml", strings.Replace(zone, "{name: de}", "{name: fr}", 1))
	time.Sleep(looks)
	if _, err := w.zones(t).Get(t.Context(), "de", metav1.GetOptions{}); err != nil {
		t.Errorf("the previous content of the file is not in use: %v", err)
	}
	if _, err := w.zones(t).Get(t.Context(), "fr", metav1.GetOptions{}); err == nil {
		t.Error("valid files take effect despite an invalid one")
	}
	file(t, folder, "zone.yaml", zone)
	time.Sleep(looks)
	if _, err := w.zones(t).Get(t.Context(), "fr", metav1.GetOptions{}); err != nil {
		t.Errorf("the fixed directory is not read: %v", err)
	}
}

func TestWatch(t *testing.T) {
	w := onNetwork(t)
	defer w.end()
	client, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps("team")
	add := func(name, label string) *v1.ConfigMap {
		t.Helper()
		m, err := maps.Create(t.Context(), &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"is": label}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := add("first", "wanted")
	add("second", "other")
	list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "is=wanted"})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("listed %d: %v", len(list.Items), err)
	}
	third := add("third", "wanted") // between the list and the watch
	events, err := maps.Watch(t.Context(), metav1.ListOptions{
		LabelSelector: "is=wanted", ResourceVersion: list.ResourceVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	first.Labels["is"] = "other"
	if _, err := maps.Update(t.Context(), first, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), third.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		what watch.EventType
		name string
	}{{watch.Added, "third"}, {watch.Deleted, "first"}, {watch.Deleted, "third"}} {
		e, ok := <-events.ResultChan()
		if m, _ := e.Object.(*v1.ConfigMap); !ok || e.Type != want.what || m == nil || m.Name != want.name {
			t.Fatalf("received %v %v, want %v", e.Type, e.Object, want)
		}
	}
	old, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Stop()
	if e := <-old.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("a watch from a version before the first change received %v %v", e.Type, e.Object)
	}
}

// TestEventsExpire verifies that events are deleted after an hour, regardless of their number.
func TestEventsExpire(t *testing.T) { synctest.Test(t, testEventsExpire) }

func testEventsExpire(t *testing.T) {
	w := begin(t, t.TempDir(), filepath.Join(t.TempDir(), "objects.json"))
	defer w.end()
	client, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	events := client.CoreV1().Events("team")
	for name, age := range map[string]time.Duration{"old": 2 * time.Hour, "young": time.Minute} {
		made := metav1.NewTime(time.Now().Add(-age))
		_, err := events.Create(t.Context(), &v1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: made},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(looks)
	list, err := events.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "young" {
		t.Fatalf("there are %d events: %v", len(list.Items), err)
	}
}

// TestReplace verifies that fields are preserved from the current version of a replaced object.
func TestReplace(t *testing.T) {
	w := begin(t, t.TempDir(), filepath.Join(t.TempDir(), "objects.json"))
	defer w.end()
	kind := v1.SchemeGroupVersion.WithKind("ConfigMap")
	show := func(value string) {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		o.SetNamespace("team")
		o.SetName("one")
		o.SetLabels(map[string]string{"shown": value})
		none := func(metav1.Object) bool { return false }
		w.server.Replace(kind, []*unstructured.Unstructured{o}, none, func(o, previous *unstructured.Unstructured) {
			o.SetAnnotations(previous.GetAnnotations())
		})
	}
	show("first")
	client, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps("team").Patch(t.Context(), "one", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"asked":"true"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	show("second")
	o := w.server.Object(kind, "team", "one")
	if o == nil || o.GetLabels()["shown"] != "second" || o.GetAnnotations()["asked"] != "true" {
		t.Errorf("the object is %v", o)
	}
}

func TestToken(t *testing.T) {
	w := begin(t, t.TempDir(), filepath.Join(t.TempDir(), "objects.json"))
	defer w.end()
	for _, token := range []string{"", "Secret", "secret2"} {
		w.config.BearerToken = token
		_, err := w.zones(t).List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("with token %q: %v", token, err)
		}
	}
}

// TestReader verifies that the token of the reader only grants access to the energy of jobs.
func TestReader(t *testing.T) {
	w := begin(t, t.TempDir(), filepath.Join(t.TempDir(), "objects.json"))
	defer w.end()
	client, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{
		"reader": "kubenergy-reader", "secret": "kubenergy-operator", "": "", "x": "",
	} {
		review, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token},
		}, metav1.CreateOptions{})
		current := review.Status
		if err != nil || current.User.Username != want || current.Authenticated != (want != "") {
			t.Errorf("the user of token %q is %q, %v: %v", token, current.User.Username, current.Authenticated, err)
		}
	}
	for _, c := range []struct {
		user, verb, resource string
		want                 bool
	}{
		{"kubenergy-reader", "list", "energy", true},
		{"kubenergy-reader", "list", "nodeenergy", false},
		{"kubenergy-reader", "create", "records", false},
		{"kubenergy-operator", "create", "records", true},
		{"", "list", "energy", false},
	} {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: c.user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: c.verb, Resource: c.resource},
			}}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed != c.want {
			t.Errorf("%+v: %v, %v", c, review.Status.Allowed, err)
		}
	}
	w.config.BearerToken = "reader"
	if _, err := w.zones(t).List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the reader can list objects: %v", err)
	}
}

// TestPutOfWhatHasChanged verifies that an object that was modified or deleted after it was read is not stored
// again.
func TestPutOfWhatHasChanged(t *testing.T) {
	w := begin(t, t.TempDir(), filepath.Join(t.TempDir(), "objects.json"))
	defer w.end()
	kind := batchv1.SchemeGroupVersion.WithKind("Job")
	job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}
	job.SetName("a")
	job.SetNamespace("physics")
	if err := w.server.Put(kind, job); err != nil {
		t.Fatal(err)
	}
	read, later := job.DeepCopy(), job.DeepCopy()
	later.SetAnnotations(map[string]string{v1alpha1.AnnotationRunNow: "true"})
	if err := w.server.Put(kind, later); err != nil {
		t.Fatal(err)
	}
	read.SetAnnotations(map[string]string{v1alpha1.AnnotationRunsOn: "slurm/1"})
	if err := w.server.Put(kind, read); err == nil {
		t.Error("an outdated object replaces a newer version")
	}
	if err := w.server.Drop(kind, "physics", "a"); err != nil {
		t.Fatal(err)
	}
	if err := w.server.Put(kind, later); err == nil {
		t.Error("a deleted object is stored again")
	}
}
