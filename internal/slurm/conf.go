package slurm

import (
	"fmt"
	"os"
	"strings"
)

// checkConf returns an error if slurm.conf prevents the age of a job from increasing while the job waits for its
// BeginTime. Jobs submitted later would then overtake it. The basic priority plugin does not use the age.
func checkConf(file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("checking whether waiting jobs age: %w: set the path of slurm.conf with --slurm-conf", err)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			said[strings.ToLower(strings.TrimSpace(key))] = strings.ToLower(strings.TrimSpace(value))
		}
	}
	if said["prioritytype"] == "priority/basic" || strings.Contains(said["priorityflags"], "accrue_always") {
		return nil
	}
	return fmt.Errorf("%s does not contain PriorityFlags=ACCRUE_ALWAYS: delayed jobs do not age and are overtaken by "+
		"jobs submitted later; add it and run scontrol reconfigure", file)
}
