package server_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// An item that cannot be a task is answered in its place and fails no other.
func TestTaskService_SubmitTasks_badItems(t *testing.T) {
	t.Parallel()
	b := newBed(t, server.Config{})
	b.source(t, "news")
	ten := int32(10)
	bad := map[string]*pb.SubmitItem{
		"source_id": {SourceId: "a{b}", Url: "http://a.com"},
		"url":       {SourceId: "news"},
		"queue":     {SourceId: "news", Key: "k", Queue: "a b"},
		"kind":      {SourceId: "news", Url: "http://a.com", Kind: strings.Repeat("k", 129)},
		"key":       {SourceId: "news", Url: "http://a.com", Key: strings.Repeat("k", 2049)},
		"priority":  {SourceId: "news", Url: "http://a.com", Priority: &ten},
		"due_time":  {SourceId: "news", Url: "http://a.com", DueTime: timestamppb.New(time.Now().AddDate(11, 0, 0))},
		"metadata":  {SourceId: "news", Url: "http://a.com", Metadata: map[string]string{"k": strings.Repeat("v", 8<<10)}},
		"payload":   {SourceId: "news", Url: "http://a.com", Payload: make([]byte, 256<<10+1)},
		"if_exists": {SourceId: "news", Url: "http://a.com", IfExists: 9},
	}
	for field, item := range bad {
		t.Run(field, func(t *testing.T) {
			resp, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{
				item, {SourceId: "news", Url: "http://a.com/" + field},
			}})
			if err != nil {
				t.Fatal(err)
			}
			got := resp.GetResults()
			if got[0].GetCode() != pb.SubmitCode_SUBMIT_CODE_INVALID || got[0].GetErrorReason() != pb.ErrorReason_ERROR_REASON_INVALID_FIELD ||
				!strings.Contains(got[0].GetMessage(), field) || got[0].GetTaskId() != "" {
				t.Errorf("bad item: %v", got[0])
			}
			if got[1].GetCode() != pb.SubmitCode_SUBMIT_CODE_CREATED {
				t.Errorf("good item: %v", got[1])
			}
		})
	}
	t.Run("unknown source", func(t *testing.T) {
		resp, err := b.tasks.SubmitTasks(t.Context(), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: "none", Url: "http://a.com"}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetResults()[0]; got.GetErrorReason() != pb.ErrorReason_ERROR_REASON_SOURCE_NOT_FOUND {
			t.Errorf("got %v", got)
		}
	})
}
