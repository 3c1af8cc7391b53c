package child

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestEnvironmentIsScrubbed(t *testing.T) {
	t.Setenv("SLACK_TOKEN", "xoxb-1")
	t.Setenv("NVIDIA_API_KEY", "nvapi-1")
	t.Setenv("NVIDIA_VISIBLE_DEVICES", "all")
	t.Setenv("FAKENVML_FILE", "/tmp/x")
	t.Setenv("LD_LIBRARY_PATH", "/opt/nvidia")
	c := running(t, New(fakeConfig(t, "environment")))
	env := part(t, c).Node.Name
	for _, want := range []string{"NVIDIA_VISIBLE_DEVICES=all", "FAKENVML_FILE=/tmp/x", "LD_LIBRARY_PATH=/opt/nvidia", "PATH=", modeVariable} {
		if !strings.Contains(env, want) {
			t.Errorf("the child does not get %s", want)
		}
	}
	for _, secret := range []string{"xoxb-1", "nvapi-1", "HOME="} {
		if strings.Contains(env, secret) {
			t.Errorf("the child gets %s", secret)
		}
	}
}

func TestChildHasNoNetwork(t *testing.T) {
	c := running(t, New(fakeConfig(t, "network")))
	links := part(t, c).Node.Name
	if !c.Status().Isolated {
		t.Skip("this user or kernel cannot take the network away")
	}
	if links != "1 <nil>" {
		t.Errorf("an isolated child sees %s interfaces, want the loopback alone", links)
	}
}

func TestKernelRefusesIsolation(t *testing.T) {
	var log lockedBuffer
	cfg := fakeConfig(t, "late words")
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := New(cfg)
	c.isolate = syscall.CLONE_THREAD // without CLONE_SIGHAND no kernel takes it
	running(t, c)
	eventually(t, "a child in spite of the refusal", func() bool { return c.Status().Restarts >= 3 })
	if n := strings.Count(log.String(), "the kernel refuses"); n != 1 {
		t.Errorf("the refusal was said %d times", n)
	}
	if c.Status().Isolated {
		t.Error("a child with network is said to have none")
	}
}

// TestChildEndsWithTheAgent kills an agent, which cannot tidy up then.
func TestChildEndsWithTheAgent(t *testing.T) {
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), modeVariable+"=agent")
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid := 0
	if _, scanErr := fmt.Sscan(line, &pid); err != nil || scanErr != nil || pid == 0 {
		t.Fatalf("the agent says %q (%v)", line, err)
	}
	agent.Process.Kill()
	agent.Wait()
	// Nobody may reap an orphan in a container, so a zombie counts as gone.
	eventually(t, "the end of the child", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
