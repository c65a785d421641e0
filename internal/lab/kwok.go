package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/kustomize/stage/node/fast"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/client"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
)

// RunSeconds formats a duration as the value of the annotation lab-run-seconds.
func RunSeconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// kwokAnnotation with the value "fake" marks simulated nodes. KWOK ignores other nodes.
const kwokAnnotation = "kwok.x-k8s.io/node"

// nodeIP is the address of every simulated node. It is loopback, so that kubectl logs and exec fail immediately
// instead of timing out.
const nodeIP = "127.0.0.1"

const (
	kwokID       = "kubenergy-lab" // holder of the Leases of nodes that are on
	leaseSeconds = 40              // kubelet's default
	// reasonStopping is the reason for the Ready condition of nodes that are shutting down. KWOK must not make
	// these nodes ready.
	reasonStopping = "KubeletNotReady"
)

// nodeInit is the stage that makes nodes ready, except for nodes that are shutting down.
var nodeInit = strings.Replace(fast.DefaultNodeInit, "matchExpressions:", `matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .reason', operator: NotIn, values: [`+
	reasonStopping+`]}`, 1)

//go:embed stages.yaml
var ownStages string

// startKwok runs the simulation of nodes and their pods as a library, because the kwok command would read flags and
// a configuration from the user's home directory. Pods that run as processes are ignored.
func startKwok(ctx context.Context, kubeconfig string, logs *sink, processes kubelet.Programs) (*component, error) {
	conf, err := kwokConfig(kubeconfig, processes)
	if err != nil {
		return nil, err
	}
	controller, err := controllers.NewController(conf)
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	c := startComponent(ctx, "kwok", func(ctx context.Context) error {
		ctx = kwoklog.NewContext(ctx, kwoklog.NewLogger(logs, kwoklog.LevelError))
		if err := controller.Start(ctx); err != nil {
			return err
		}
		close(ready)
		<-ctx.Done()
		return nil
	})
	return c, c.wait(ctx, closed(ready))
}

func kwokConfig(kubeconfig string, processes kubelet.Programs) (controllers.Config, error) {
	none := controllers.Config{}
	stages, err := loadStages(processes)
	if err != nil {
		return none, err
	}
	clients, err := client.NewClientset("", kubeconfig)
	if err != nil {
		return none, err
	}
	config, errConfig := clients.ToRESTConfig()
	mapper, errMapper := clients.ToRESTMapper()
	dynamic, errDynamic := clients.ToDynamicClient()
	if err := errors.Join(errConfig, errMapper, errDynamic); err != nil {
		return none, err
	}
	binary := rest.CopyConfig(config) // protobuf reduces the CPU usage of the machine shared by all components
	binary.ContentType = runtime.ContentTypeProtobuf
	binary.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	typed, errTyped := kubernetes.NewForConfig(binary)
	plain, errPlain := rest.RESTClientFor(config)
	if err := errors.Join(errTyped, errPlain); err != nil {
		return none, err
	}
	return controllers.Config{
		Clock:                             clock.RealClock{},
		DynamicClient:                     dynamic,
		RESTClient:                        plain,
		ImpersonatingDynamicClient:        clients.ToImpersonatingDynamicClient(),
		ImpersonatingTypedClient:          clients.ToImpersonatingTypedClient(),
		RESTMapper:                        mapper,
		TypedClient:                       typed,
		ManageNodesWithAnnotationSelector: kwokAnnotation + "=fake",
		// The range is large because addresses outside the range are never returned to the pool.
		CIDR:                      "10.128.0.0/9",
		NodeIP:                    nodeIP,
		LocalStages:               stages,
		PodPlayStageParallelism:   16,
		NodePlayStageParallelism:  16,
		NodeLeaseDurationSeconds:  leaseSeconds,
		NodeLeaseParallelism:      4,
		PodsOnNodeSyncParallelism: 4,
		ID:                        kwokID,
	}, nil
}

func loadStages(processes kubelet.Programs) (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	// Nodes send heartbeats through their Leases only. KWOK's heartbeat stage would make a node ready again that
	// was turned off less than ten minutes before.
	documents := []string{nodeInit, podfast.DefaultPodReady}
	documents = append(documents, strings.Split(ownStages, "\n---\n")...)
	stages := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	for _, doc := range documents {
		var external v1alpha1.Stage
		if err := yaml.UnmarshalStrict([]byte(doc), &external); err != nil {
			return nil, fmt.Errorf("reading stages: %w", err)
		}
		v1alpha1.SetObjectDefaults_Stage(&external)
		stage, err := internalversion.ConvertToInternalStage(&external)
		if err != nil {
			return nil, fmt.Errorf("reading stage %s: %w", external.Name, err)
		}
		if len(processes.Images) > 0 && stage.Spec.ResourceRef.Kind == "Pod" {
			stage.Spec.Selector.MatchExpressions = append(stage.Spec.Selector.MatchExpressions,
				internalversion.MatchExpression{
					JQ: &internalversion.SelectorJQ{
						Key: processes.Expression(), Operator: internalversion.SelectorOpDoesNotExist,
					},
				})
		}
		stages[stage.Spec.ResourceRef] = append(stages[stage.Spec.ResourceRef], stage)
	}
	return stages, nil
}
