package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// A dispatcher remembers tasks that were released [bounds.FreeReleases] times in a row or more, by hints. The count is in
// the task, so one that has begun since learns of the task at its next release.
const (
	maxReleased    = 100
	releasedMemory = 24 * time.Hour
	// releasedAgain is how often the others are reminded of a task.
	releasedAgain = 30 * time.Second
	// maxReminders of all tasks in a second; the rest waits for the next release.
	maxReminders = 10
)

// noteReleased makes all dispatchers remember a task that was released often.
func (d *Dispatcher) noteReleased(ctx context.Context, t *dispatch.Task, releases uint8) {
	if releases < bounds.FreeReleases {
		return
	}
	known := d.released.Get(t.ID)
	lately := known != nil && time.Until(known.ExpiresAt()) > releasedMemory-releasedAgain
	if d.released.Set(t.ID, t.SourceID, releasedMemory); lately || !d.reminders.Allow() {
		return
	}
	if err := d.store.Publish(ctx, dispatch.Hint{Kind: dispatch.HintReleased, ID: t.SourceID, Task: t.ID}); err != nil {
		d.log.Info("failed to publish that a task was released again", zap.String("task", string(t.ID)), zap.Error(err))
	}
}

// Released are tasks that may have been released [bounds.FreeReleases] times in a row or more, of the sources that of
// selects by their ids.
func (d *Dispatcher) Released(of func(source string) bool) (ids []dispatch.TaskID) {
	for id, item := range d.released.Items() {
		if of(item.Value()) {
			ids = append(ids, id)
		}
	}
	return ids
}

// ForgetReleased forgets a task that was not released again.
func (d *Dispatcher) ForgetReleased(id dispatch.TaskID) { d.released.Delete(id) }
