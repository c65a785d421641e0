package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	"k8s.io/utils/ptr"
)

// command returns the command that runs a container on this machine.
func (p *pod) command(ctx context.Context, c *corev1.Container, program string) (*exec.Cmd, error) {
	env, err := p.environment(ctx, c)
	if err != nil {
		return nil, err
	}
	mounts := p.mounts(c)
	account, _ := mounts.find(accountDir)
	args := slices.Concat(c.Command[min(1, len(c.Command)):], c.Args)
	lookup := expansion.MappingFuncFor(env)
	for i, arg := range args {
		if args[i], err = p.rewrite(expansion.Expand(arg, lookup), mounts); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, p.withServing(args, account != "")...)
	cmd.Dir = p.dir
	// Like a container, the process does not inherit the environment of this process.
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + p.dir, "TMPDIR=" + filepath.Join(p.dir, "tmp")}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value, err := p.rewrite(env[name], mounts)
		if err != nil {
			return nil, err
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if account != "" {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+p.kubeconfig())
	}
	return cmd, nil
}

// rewrite replaces ports, Services and mounted paths by their equivalents on this machine. Services are replaced
// after ports, because their replacements look like listen addresses.
func (p *pod) rewrite(text string, mounts mounts) (string, error) {
	text, err := p.kubelet.services.rewrite(p.ports.rewrite(text))
	return mounts.rewrite(text), err
}

// withServing adds the arguments that a Kubernetes component that serves TLS needs outside a container: a loopback
// address to listen on, and the kubeconfig for delegated authentication and authorization, because these components
// do not use $KUBECONFIG.
func (p *pod) withServing(args []string, account bool) []string {
	has := func(flag string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, flag+"=") })
	}
	if !has("--secure-port") {
		return args
	}
	if !has("--bind-address") {
		args = append(args, "--bind-address="+address)
	}
	for _, flag := range []string{"--authentication-kubeconfig", "--authorization-kubeconfig"} {
		if account && !has(flag) {
			args = append(args, flag+"="+p.kubeconfig())
		}
	}
	return args
}

// environment returns the expanded environment of a container.
func (p *pod) environment(ctx context.Context, c *corev1.Container) (map[string]string, error) {
	object := p.object()
	env := map[string]string{}
	for i := range c.Env {
		e := &c.Env[i]
		if e.ValueFrom == nil {
			env[e.Name] = expansion.Expand(e.Value, expansion.MappingFuncFor(env))
			continue
		}
		value, ok, err := p.valueFrom(ctx, object, c, e.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", e.Name, err)
		}
		if ok {
			env[e.Name] = value
		}
	}
	return env, nil
}

func (p *pod) valueFrom(ctx context.Context, object *corev1.Pod, c *corev1.Container,
	from *corev1.EnvVarSource,
) (value string, ok bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = p.field(object, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = p.resource(ctx, object, c, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		all, err := p.configMap(ctx, object.Namespace, r.Name, nil, r.Optional)
		return keyOf(all, r.Key, r.Optional, err)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		all, err := p.secret(ctx, object.Namespace, r.Name, nil, r.Optional)
		return keyOf(all, r.Key, r.Optional, err)
	}
	return "", false, errors.New("only fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef are supported")
}

// keyOf returns the value of a key in a ConfigMap or Secret.
func keyOf(all content, key string, optional *bool, err error) (value string, ok bool, _ error) {
	found, ok := all[key]
	if err == nil && !ok && !ptr.Deref(optional, false) {
		err = fmt.Errorf("key %q does not exist", key)
	}
	return string(found.Data), ok, err
}

// field returns a field of the pod. Fields set by a kubelet are available before they are in the status. The
// address of the pod is the address at which the program can listen.
func (p *pod) field(object *corev1.Pod, path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return object.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return object.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs":
		return address, nil
	}
	return fieldpath.ExtractFieldPathAsString(object, path)
}

// resource returns a request or limit of a container. An unset limit defaults to the node's allocatable amount.
func (p *pod) resource(ctx context.Context, object *corev1.Pod, c *corev1.Container,
	from *corev1.ResourceFieldSelector,
) (string, error) {
	node, err := p.kubelet.Client.CoreV1().Nodes().Get(ctx, object.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return resource.ExtractResourceValueByContainerNameAndNodeAllocatable(from, object,
		cmp.Or(from.ContainerName, c.Name), node.Status.Allocatable)
}
