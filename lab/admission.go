package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/kube"
)

// AdmitHolds installs the shipped policy that suspends Jobs which may wait, and returns once it works, which takes the
// API server a second or two.
func (c *Cluster) AdmitHolds(ctx context.Context) error {
	reader := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(deploy.HoldAdmission), 4096)
	admission := c.client.AdmissionregistrationV1()
	var policy admissionv1.MutatingAdmissionPolicy
	var binding admissionv1.MutatingAdmissionPolicyBinding
	for _, into := range []any{&policy, &binding} {
		if err := reader.Decode(into); err != nil {
			return fmt.Errorf("reading the hold policy: %w", err)
		}
	}
	if err := reader.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return errors.New("reading the hold policy: it has more than a policy and a binding")
	}
	if _, err := admission.MutatingAdmissionPolicies().Create(ctx, &policy, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("installing the hold policy: %w", err)
	}
	if _, err := admission.MutatingAdmissionPolicyBindings().Create(ctx, &binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("installing the hold policy: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		return admitsHolds(ctx, c.client)
	})
	if err != nil {
		return fmt.Errorf("waiting for the hold policy to work: %w", err)
	}
	return nil
}

// admitsHolds asks what would become of a Job that may wait.
func admitsHolds(ctx context.Context, client kubernetes.Interface) (bool, error) {
	probe := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: metav1.NamespaceDefault, Annotations: map[string]string{kube.AnnotationAllowedDelay: "1h"}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "probe", Image: "probe"}},
		}}},
	}
	got, err := client.BatchV1().Jobs(probe.Namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return false, err
	}
	return got.Spec.Suspend != nil && *got.Spec.Suspend, nil
}
