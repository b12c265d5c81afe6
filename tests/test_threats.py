"""Every row of the threat model that has a boundary here, and the tests that hold it: the table that an auditor starts from.

The rows' numbers are those of the specification; what each must not let happen is in a few words. A test that is renamed or
removed makes this red.
"""

import ast

import pytest

from tests.named import TESTS, exists, held

THREATS = """
1 fail-open signature
  gateway/config/test_problems.py: test_a_webhook_account_without_its_secret_is_refused
  channels/test_feishu_receive.py: test_webhook_of_random_bytes_is_refused
  channels/test_telegram_receive.py: test_webhook_secret_is_required_on_telegram
2 token instead of signature
  channels/test_feishu_receive.py: test_webhook_signature_missing_is_refused_despite_encryption
  channels/test_feishu_receive.py: test_challenge_or_signature_does_not_excuse_a_wrong_token
3 trust by address or header
  channels/test_web_admission.py: test_web_host_of_a_proxied_request_is_not_local
  stories/http/test_token_guesses.py: test_rate_limit_of_guesses_ignores_forged_forwarded_addresses
  stories/web/test_web_door.py: test_web_session_cookie_is_host_bound_over_tls
4 timing and brute force
  stories/http/test_token_guesses.py: test_rate_limit_of_token_guesses_is_shared_by_all_routes
  stories/http/test_webhook_fuzz.py: test_webhook_fuzz_breaks_nothing_and_stores_nothing_forged
5 replay
  stories/promises/test_promises.py: test_redelivered_event_is_deduped_to_one_turn_and_one_reply
  stories/channels/test_telegram.py: test_redelivered_update_is_one_turn_and_a_press_starts_none
6 digest malleability
  channels/test_feishu_receive.py: test_webhook_signature_replay_with_a_changed_timestamp_is_refused
  channels/test_feishu_receive.py: test_webhook_signature_header_sent_twice_is_refused
7 decrypt before verify
  channels/test_feishu_receive.py: test_webhook_with_an_encrypt_key_refuses_plain_bodies
  channels/test_feishu_receive.py: test_challenge_in_its_2_0_form_is_answered_without_a_signature
8 parse before verify
  stories/http/test_door.py: test_webhook_of_wrong_path_method_or_size_is_refused
  stories/http/test_door.py: test_http_body_timeout_refuses_a_slow_body
9 routing confusion
  channels/test_feishu_receive.py: test_webhook_for_another_app_is_refused
  stories/web/test_web_door.py: test_web_host_allowlist_refuses_other_names
10 mutable identity
  stories/promises/test_promises.py: test_allowlist_and_policies_decide_who_is_heard
11 scope bleed
  stories/turns/test_rights.py: test_rights_of_a_turn_are_those_of_who_commanded_it
  stories/turns/test_rights.py: test_rights_of_a_press_reach_no_agent_bound_to_others
  stories/promises/test_promises.py: test_allowlist_and_policies_decide_who_is_heard
12 side doors skip checks
  stories/operate/test_self_watch.py: test_self_watch_delivery_cannot_be_forged
  channels/test_samples.py: test_there_is_a_sample_for_every_kind_of_event
  channels/test_telegram_samples.py: test_there_is_a_sample_for_every_kind_of_update
13 missing type falls open
  channels/test_feishu_receive.py: test_feishu_unknown_chat_kind_is_treated_as_a_group
14 forged envelope
  agents/prompt/test_fences.py: test_no_line_of_any_text_reads_as_ours
  agents/prompt/test_inbound.py: test_whatever_people_write_the_message_keeps_its_shape
15 metadata into system prompt
  agents/prompt/test_system.py: test_prompt_names_and_files_cannot_forge_sections
  agents/prompt/test_system.py: test_the_stable_part_does_not_know_the_session
16 trusted text mixed with user text
  agents/prompt/test_inbound.py: test_the_body_is_the_id_and_then_what_the_person_said
  agents/prompt/test_fences.py: test_no_heading_of_ours_can_be_written_by_a_person
17 tool output as authority
  stories/tools/test_web_tools.py: test_web_fetch_result_is_fenced_by_an_unknown_boundary
18 directive smuggling
  agents/prompt/test_reply.py: test_which_files_an_answer_names
  agents/prompt/test_reply.py: test_what_is_meant_for_the_gateway_is_not_sent
  stories/web/test_web_files.py: test_web_file_name_cannot_escape_folder_or_header
19 silent token abuse
  agents/prompt/test_reply.py: test_the_silent_token_alone_sends_nothing
  agents/prompt/test_reply.py: test_the_token_is_never_seen_and_a_second_look_finds_nothing_more
20 chat-template tokens
  agents/prompt/test_fences.py: test_each_disguise_is_seen_through
21 exfiltration through replies
  tools/test_toolbox.py: test_another_chat_is_reached_only_where_the_config_names_it
  stories/turns/test_canaries.py: test_secret_canaries_are_never_written
  stories/turns/test_canaries.py: test_secret_canaries_never_reach_a_page_in_any_cut
22 first-token allowlist
  tools/test_binding.py: test_approval_grant_is_not_offered_for_running_or_writing
  stories/approvals/test_approvals.py: test_approval_grant_runs_unasked_until_revoked
23 wrappers
  stories/approvals/test_approvals.py: test_approval_of_a_file_that_changed_since_runs_nothing
24 a safe binary with an unsafe option
  tools/test_binding.py: test_approval_grant_offered_never_touches_the_workspace
  stories/approvals/test_approvals.py: test_approval_grant_runs_unasked_until_revoked
25 environment
  tools/test_exec.py: test_the_shell_starts_with_six_names_and_no_way_to_more_rights
26 dotfiles of the workspace
  tools/test_confinement.py: test_confinement_protects_names_in_any_spelling
27 allow-always too wide
  tools/test_binding.py: test_approval_grant_offered_never_touches_the_workspace
  stories/approvals/test_approvals.py: test_approval_grant_runs_unasked_until_revoked
28 time of check, time of use
  tools/test_binding.py: test_of_an_approved_script_only_those_bytes_run_that_were_hashed
  stories/approvals/test_approvals.py: test_approval_runs_only_the_approved_script_despite_a_racing_writer
  stories/approvals/test_approvals.py: test_approval_of_a_file_that_changed_since_runs_nothing
29 display is not execution
  gateway/test_approvals.py: test_approval_text_shows_hidden_characters
  gateway/test_approvals.py: test_approval_text_block_cannot_be_ended_by_the_command
31 a tool set rebuilt elsewhere
  tools/test_policy.py: test_tools_are_handed_out_in_one_place
  tools/test_policy.py: test_a_toolbox_hands_out_what_is_permitted_whatever_source_it_is_from
32 path escape
  tools/test_beneath.py: *
33 links and second names
  tools/test_files.py: test_a_link_or_a_second_name_is_not_written_through
  agents/prompt/test_workspace_files.py: test_links_pipes_folders_and_second_names_are_passed_over
35 requests forged by the server
  tools/test_web_fetch.py: test_no_address_is_made_public_by_wrapping_it
  tools/test_web_fetch.py: test_one_bad_address_blocks_a_host
  tools/test_web_fetch.py: test_a_redirect_is_judged_like_the_first_address
36 credentials to the wrong host
  tools/test_web_fetch.py: test_web_fetch_redirects_are_limited_and_carry_no_headers
38 process hygiene
  stories/process/test_process.py: test_killed_gateway_kills_its_command_and_never_reruns_it
39 cross-session
  stories/promises/test_promises.py: test_agents_share_nothing_and_two_chats_of_one_share_no_history
  stories/turns/test_sessions.py: test_session_scope_in_a_group_is_shared_or_per_person
40 stale authority
  stories/config/test_reload.py: test_reload_adds_and_removes_channels_and_revokes_secrets
  stories/web/test_web_door.py: test_web_session_end_closes_its_event_stream
  stories/turns/test_canaries.py: test_secret_revoked_by_a_reload_stays_masked
41 admin by browser
  stories/web/test_web_door.py: test_csrf_no_other_site_reads_or_changes_anything
  stories/web/test_web_door.py: test_web_security_headers_are_on_every_answer
  stories/web/test_web_door.py: test_web_api_takes_declared_json_only
  browser/test_web_safety.py: test_another_site_cannot_write_in_our_name
42 model-driven config
  test_threats.py: test_no_tool_and_no_command_writes_config
43 secret leaks
  channels/test_telegram_send.py: test_telegram_token_is_in_no_log_exception_or_repr
  stories/process/test_process.py: test_log_and_data_files_hold_no_secret_or_message_text
  gateway/test_logs.py: test_log_masks_a_configured_secret_in_every_form
  stories/process/test_process.py: test_file_permissions_are_owner_only_on_every_run
44 denial of service
  stories/http/test_door.py: test_http_header_without_end_hits_the_cap
  agents/prompt/test_fences.py: test_a_text_made_to_be_slow_is_read_in_one_go
  gateway/test_request.py: *
45 YAML and JSON
  gateway/config/test_yaml.py: *
46 poison rows
  channels/test_feishu_receive.py: test_feishu_message_loses_characters_no_database_takes
  stories/outbox/test_dead_letters.py: test_dead_letter_of_a_message_can_be_replayed
"""
ELSEWHERE = {30, 34, 37}
"""There is no such thing here: runs that nobody asked for, archives that are opened, skills that are installed."""


@pytest.mark.parametrize(("row", "lines"), list(held(THREATS)))
def test_what_a_row_names_exists(row: str, lines: list[str]) -> None:
    assert lines, f"nothing holds row {row}"
    assert [line for line in lines if not exists(line)] == []


def test_no_row_is_forgotten() -> None:
    numbers = [int(row.partition(" ")[0]) for row, _ in held(THREATS)]
    assert numbers == sorted(set(numbers))
    assert {*numbers} | ELSEWHERE == {*range(1, 47)}


def test_no_tool_and_no_command_writes_config() -> None:
    """An operator edits it: nothing that a chat or a model reaches holds its path, or a way to write it."""
    root = TESTS.parent
    reached = [*root.glob("tools/*.py"), *root.glob("agents/**/*.py"), *root.glob("gateway/commands/*.py")]
    writers = ("reference.py", "serving.py")  # of the documentation, and of the record that a gateway leaves in `data`
    readers = [path for path in root.glob("gateway/config/*.py") if path.name not in writers]
    assert len(reached) > 50
    for path in reached:
        assert "gateway.config.load" not in path.read_text(encoding="utf-8"), path
    for path in (*readers, *root.glob("gateway/commands/*.py"), root / "gateway" / "app" / "serve.py"):
        called = {
            it.attr for it in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(it, ast.Attribute)
        }
        assert not called & {"write_text", "write_bytes", "rename", "replace_file", "unlink"}, path
