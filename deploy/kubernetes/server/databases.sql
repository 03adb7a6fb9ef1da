-- Two roles, each with a database of its own. For psql 15 or newer, as the administrator; the
-- passwords come from the environment (postgres.env), so they are in no file or command line:
--   psql --file databases.sql
\set ON_ERROR_STOP on
\set prefect_password ''
\set modelmill_password ''
\getenv prefect_password DB_PASSWORD_PREFECT
\getenv modelmill_password DB_PASSWORD_MODELMILL
-- A missing password is an error, never an empty password.
SELECT :'prefect_password' <> '' AND :'modelmill_password' <> '' AS given \gset
\if :given
\else
  \warn 'DB_PASSWORD_PREFECT or DB_PASSWORD_MODELMILL is empty'
  SELECT 1 / 0;
\endif
CREATE ROLE prefect LOGIN PASSWORD :'prefect_password';
CREATE ROLE modelmill LOGIN PASSWORD :'modelmill_password';
CREATE DATABASE prefect OWNER prefect;
CREATE DATABASE modelmill OWNER modelmill;
REVOKE CONNECT ON DATABASE prefect, modelmill FROM PUBLIC;
