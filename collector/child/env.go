package child

import "strings"

// passed are the agent's variables that the child gets; a * stands for any end.
var passed = []string{"PATH", "LD_LIBRARY_PATH", "NVIDIA_*", "FAKENVML_*"}

// secretive are parts of names that no child gets: NVIDIA_API_KEY opens NVIDIA's
// model registry and is no business of the driver.
var secretive = []string{"KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH"}

// environment returns the child's variables: what it needs of the agent's, and
// what is added by configuration, which wins.
func environment(agent, added []string) []string {
	var env []string
	for _, kv := range agent {
		name, _, _ := strings.Cut(kv, "=")
		if isPassed(name) {
			env = append(env, kv)
		}
	}
	return append(env, added...)
}

func isPassed(name string) bool {
	for _, s := range secretive {
		if strings.Contains(strings.ToUpper(name), s) {
			return false
		}
	}
	for _, p := range passed {
		prefix, open := strings.CutSuffix(p, "*")
		if name == prefix || open && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
