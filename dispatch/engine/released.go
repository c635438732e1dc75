package engine

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

const (
	// maxReleased limits the remembered tasks; beyond it, the one with the earliest release is forgotten.
	maxReleased = 100
	// releasedAgain is how often other dispatchers are reminded of a task: one may have begun since.
	releasedAgain = 30 * time.Second
)

// releasedTasks remembers tasks that were released [bounds.FreeReleases] times in a row or more, by hints. The count is
// in the task, so a dispatcher that has begun since learns of the task at its next release.
type releasedTasks struct {
	mu    sync.Mutex // guards tasks
	tasks map[dispatch.TaskID]releasedTask
}

type releasedTask struct {
	source string // id
	at     time.Time
}

// note remembers a task, and reports whether it was not noted for a while.
func (r *releasedTasks) note(source string, id dispatch.TaskID) (fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	was, known := r.tasks[id]
	if !known && len(r.tasks) >= maxReleased {
		var first dispatch.TaskID
		for other, task := range r.tasks {
			if first == "" || task.at.Before(r.tasks[first].at) {
				first = other
			}
		}
		delete(r.tasks, first)
	}
	r.tasks[id] = releasedTask{source, now}
	return now.Sub(was.at) >= releasedAgain
}

// noteReleased makes all dispatchers remember a task that was released often.
func (d *Dispatcher) noteReleased(ctx context.Context, t *dispatch.Task, releases uint8) {
	if releases < bounds.FreeReleases || !d.released.note(t.SourceID, t.ID) {
		return
	}
	if err := d.store.Publish(ctx, dispatch.Hint{Kind: dispatch.HintReleased, ID: t.SourceID, Task: t.ID}); err != nil {
		d.log.Info("failed to publish that a task was released again", zap.String("task", string(t.ID)), zap.Error(err))
	}
}

// Released are tasks of these sources, by id, that may have been released [bounds.FreeReleases] times in a row or more.
func (d *Dispatcher) Released(sources map[string]bool) (ids []dispatch.TaskID) {
	d.released.mu.Lock()
	defer d.released.mu.Unlock()
	for id, task := range d.released.tasks {
		if sources[task.source] {
			ids = append(ids, id)
		}
	}
	return ids
}

// ForgetReleased forgets a task that was not released again.
func (d *Dispatcher) ForgetReleased(id dispatch.TaskID) {
	d.released.mu.Lock()
	defer d.released.mu.Unlock()
	delete(d.released.tasks, id)
}
