package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/kubelet/token"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Options configures the pods to run.
type Options struct {
	Client kubernetes.Interface // with full access to pods, and to objects mounted by pods
	Config *rest.Config         // connection to the API server for pods
	Dir    string               // directories of pods and, in logs/, their output
	Programs
	Network *Network // must be used to connect to pods
	Log     *slog.Logger
}

// Programs selects the pods to run.
type Programs struct {
	Binaries string // directory of the programs
	// Images are the last elements of image names, without registry, repository and tag. Pods with such a container
	// are run; each is also the name of a program in Binaries.
	Images []string
}

// kubelet runs all selected pods of all nodes.
type kubelet struct {
	Options
	services *services
	tokens   *token.Manager
	running  sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*pod
}

// Run runs pods until ctx is cancelled, and returns when all their processes have exited.
func Run(ctx context.Context, o Options) error {
	k := &kubelet{Options: o, tokens: token.NewManager(o.Client), pods: map[types.UID]*pod{}}
	// Independent of ctx, because processes may use the services until they exit.
	k.services = newServices(context.WithoutCancel(ctx), k.targets, k.Log)
	defer k.services.stop()
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, 0,
		informers.WithTweakListOptions(func(l *metav1.ListOptions) {
			l.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.see(ctx, o) },
		UpdateFunc: func(_, o any) { k.see(ctx, o) },
		DeleteFunc: k.forget,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown() // no handler runs afterwards
	k.running.Wait()
	return nil
}

// Runs reports whether a pod is selected.
func (o *Programs) Runs(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(o.Images, imageName(c.Image))
	})
}

// Expression returns a jq expression equivalent to Runs. It returns a value for selected pods and nothing for
// others.
func (o *Programs) Expression() string {
	names := sliceutil.Map(o.Images, regexp.QuoteMeta)
	pattern := strings.ReplaceAll(`(^|/)(`+strings.Join(names, "|")+`)([:@][^/]*)?$`, `\`, `\\`)
	return `select([.spec.containers[].image | test("` + pattern + `")] | any) | .metadata.name`
}

// imageName returns the last element of an image name: "scheduler" for
// "registry.example:5000/group/scheduler:v1@sha256:0".
func imageName(image string) string {
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

func (k *kubelet) see(ctx context.Context, object any) {
	latest, ok := object.(*corev1.Pod)
	if !ok || !k.Runs(latest) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pods[latest.UID]
	if p == nil {
		p = k.newPod(ctx, latest)
		k.pods[latest.UID] = p
		k.running.Go(func() { p.live(ctx) })
	}
	p.update(latest)
}

func (k *kubelet) forget(object any) {
	latest, ok := kube.EventObject[*corev1.Pod](object)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pods[latest.UID]; p != nil {
		delete(k.pods, latest.UID)
		p.gone()
	}
}

// logPath returns the file with the output of a container. It is kept after the pod is deleted.
func (k *kubelet) logPath(p *corev1.Pod, container string) string {
	return filepath.Join(k.Dir, "logs", p.Namespace+"_"+p.Name+"_"+container+".log")
}
