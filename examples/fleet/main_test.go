package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMain is also the main of the processes of the fleet.
func TestMain(m *testing.M) {
	if redis := os.Getenv("FLEET_REDIS"); redis != "" {
		if err := work(redis, os.Getenv("FLEET_API"), os.Getenv("FLEET_PROCESS")); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestFleet: the quota is kept to, whatever is killed. How much of it is used
// is left to the program, and to a machine that has the time.
func TestFleet(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	var out strings.Builder
	err := run(&out, 10*time.Second)
	t.Logf("\n%s", &out)
	if err != nil && strings.Contains(err.Error(), "sends in a second") {
		t.Error(err)
	}
}
