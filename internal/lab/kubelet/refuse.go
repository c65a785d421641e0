package kubelet

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// refuse returns an error that lists the unsupported features of a pod.
func refuse(spec *corev1.PodSpec) error {
	var errs []error
	for i := range spec.Volumes {
		errs = append(errs, refuseVolume(&spec.Volumes[i]))
	}
	if len(spec.InitContainers) > 0 {
		errs = append(errs, errors.New("init containers are not supported"))
	}
	for _, c := range spec.Containers {
		for name, probe := range map[string]*corev1.Probe{
			"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe,
		} {
			if probe != nil && probe.HTTPGet == nil {
				errs = append(errs, fmt.Errorf("container %s: %s probe: only httpGet is supported", c.Name, name))
			}
		}
		if c.Lifecycle != nil || len(c.EnvFrom) > 0 {
			errs = append(errs, fmt.Errorf("container %s: lifecycle and envFrom are not supported", c.Name))
		}
	}
	return errors.Join(errs...)
}

func refuseVolume(v *corev1.Volume) error {
	if v.ConfigMap != nil || v.Secret != nil || v.EmptyDir != nil || v.DownwardAPI != nil {
		return nil
	}
	if v.Projected == nil {
		return fmt.Errorf("volume %s: only configMap, secret, emptyDir, downwardAPI and projected are supported",
			v.Name)
	}
	for _, s := range v.Projected.Sources {
		if s.ConfigMap == nil && s.Secret == nil && s.DownwardAPI == nil && s.ServiceAccountToken == nil {
			return fmt.Errorf("volume %s: only configMap, secret, downwardAPI and serviceAccountToken can be projected",
				v.Name)
		}
	}
	return nil
}
